// An open dialog stays as it is: what it asks for is checked again when it is sent.
document.addEventListener("htmx:oobBeforeSwap", event => {
  if (document.querySelector("#placement-dialogs dialog[open]")) event.detail.shouldSwap = false;
});
