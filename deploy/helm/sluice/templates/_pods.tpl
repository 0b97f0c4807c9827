{{/* Parts of every workload. Each is given (dict "root" $ "name" COMPONENT). */}}

{{- define "sluice.labels" -}}
{app.kubernetes.io/name: sluice, app.kubernetes.io/component: {{ .name }}}
{{- end }}

{{- define "sluice.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels: {{ include "sluice.labels" . }}
{{- end }}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "sluice.size" -}}
{{ index .Values.sizes .Values.size | toJson }}
{{- end }}

{{- define "sluice.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # its variables would begin with those of Sluice
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sluice.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "sluice.labels" . }}
{{- end }}

{{- define "sluice.locked" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* A container's image, variables and folders. */}}
{{- define "sluice.container" -}}
image: {{ include "sluice.image" .root }}
envFrom:
  - configMapRef: {name: sluice}
  - secretRef: {name: {{ .root.Values.secrets.console }}}
{{ include "sluice.locked" . }}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  - {name: numba, mountPath: /numba}
{{- end }}

{{- define "sluice.volumes" -}}
- name: data
  persistentVolumeClaim: {claimName: sluice-data}
- name: tmp
  emptyDir: {}
- name: numba
  emptyDir: {}
{{- end }}

{{/* Waits for the migrations of this version. */}}
{{- define "sluice.migrated" -}}
initContainers:
  - name: migrated
    command: [sh, -c, "until python manage.py migrate --check; do sleep 5; done"]
    {{- include "sluice.container" . | nindent 4 }}
    resources:
      requests: {cpu: 100m, memory: 256Mi}
      limits: {memory: 512Mi}
{{- end }}
