// What lies over something else, or is cut, on the page as it is now: texts by their boxes on the screen.
() => {
  const found = new Set();
  const said = (element) => `“${element.textContent.trim().replace(/\s+/g, " ").slice(0, 50)}”`;
  const isShown = (element) =>
    element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
    !element.closest(".vh, svg, dialog:not([open])");

  const lines = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (!text.data.trim() || !isShown(text.parentElement)) continue;
    const clip = { left: -1e9, right: 1e9, top: -1e9, bottom: 1e9 };
    let floats = false;
    for (let up = text.parentElement; up; up = up.parentElement) {
      const style = getComputedStyle(up);
      floats ||= style.position === "fixed" || style.position === "sticky";
      if (style.overflowX === "visible") continue;
      const box = up.getBoundingClientRect();
      clip.left = Math.max(clip.left, box.left);
      clip.right = Math.min(clip.right, box.right);
      clip.top = Math.max(clip.top, box.top);
      clip.bottom = Math.min(clip.bottom, box.bottom);
    }
    if (floats) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) {
      const left = Math.max(box.left, clip.left);
      const right = Math.min(box.right, clip.right);
      const top = Math.max(box.top, clip.top);
      const bottom = Math.min(box.bottom, clip.bottom);
      if (right - left > 1 && bottom - top > 1) lines.push({ left, right, top, bottom, text });
    }
  }
  lines.sort((one, other) => one.top - other.top);
  lines.forEach((one, place) => {
    for (const other of lines.slice(place + 1)) {
      if (other.top >= one.bottom) break;
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (one.text !== other.text && across > 2 && down > 4)
        found.add(`${said(one.text.parentElement)} lies over ${said(other.text.parentElement)}`);
    }
  });

  for (const element of document.querySelectorAll("main *")) {
    const isCut = element.clientWidth && element.scrollWidth > element.clientWidth + 1;
    if (!isCut || !isShown(element) || !element.textContent.trim()) continue;
    if (element.matches("textarea, pre, input, select, .figw")) continue;
    const style = getComputedStyle(element);
    const scrolls = style.overflowX === "auto" || style.overflowX === "scroll";
    const isAbridged = style.textOverflow === "ellipsis" && element.closest("[title]");
    // on a phone a row of chips or a picture may be scrolled by itself
    if (style.overflowX === "visible" || (scrolls ? innerWidth < 800 : isAbridged)) continue;
    found.add(`${said(element)} is cut by ${element.scrollWidth - element.clientWidth} px`);
  }
  const pen = document.createElement("canvas").getContext("2d");
  for (const select of document.querySelectorAll("main select:not([multiple])")) {
    if (!isShown(select) || !select.selectedOptions.length) continue;
    const style = getComputedStyle(select);
    pen.font = style.font;
    const arrow = style.appearance === "none" ? 0 : 16;
    const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - arrow;
    const { text } = select.selectedOptions[0];
    const over = Math.round(pen.measureText(text).width - room);
    if (over > 1) found.add(`the choice “${text}” is cut by ${over} px`);
  }
  const excess = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (excess > 0) found.add(`the page is ${excess} px too wide`);
  return [...found];
}
