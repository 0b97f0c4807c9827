"""Vector pictures of reports, drawn once: `reportlab.graphics` writes them into the PDF and as SVG into the page."""
