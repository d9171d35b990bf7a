// What a reader would see of a page at its present width, for page_checklist.py.
() => {
  const seen = (e) => { const r = e.getBoundingClientRect(), s = getComputedStyle(e); return r.width > 1 && r.height > 1 && s.visibility !== "hidden" && s.display !== "none" && s.opacity !== "0"; };
  const small = [], labels = [], targets = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walk.nextNode());) {
    const e = n.parentElement;
    if (!n.data.trim() || !seen(e) || e.closest("script, style, title, #live")) continue;
    let size = parseFloat(getComputedStyle(e).fontSize);
    const svg = e.closest("svg");
    if (svg && svg.viewBox.baseVal && svg.viewBox.baseVal.width) size *= svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    if (size < 11) small.push(`${size.toFixed(1)} px: ${n.data.slice(0, 30)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (!seen(svg)) continue;
    const texts = [...svg.querySelectorAll("text")].filter((e) => e.textContent.trim()).map((e) => [e.getBoundingClientRect(), e.textContent]);
    texts.forEach(([p, one], k) => texts.slice(k + 1).forEach(([q, two]) => {
      const x = Math.min(p.right, q.right) - Math.max(p.left, q.left), y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (x > 1 && y > 3) labels.push(`${one} over ${two}`);
    }));
    if (svg.closest(".lawful-figure, [data-motion]") || svg.matches(".graph[width]")) continue;  // scrolls in its own box
    const box = svg.closest("figure, .stage, main, body").getBoundingClientRect();
    for (const [p, words] of texts) if (p.left < box.left - 2 || p.right > box.right + 2) labels.push(`${words} outside`);
  }
  for (const e of document.querySelectorAll("button, summary, input, select, a[href]")) {
    if (!seen(e) || e.type === "radio") continue;
    const r = e.getBoundingClientRect();
    if (r.height < 24 || r.width < 24) targets.push(`${e.id || e.textContent.slice(0, 20)}: ${r.width | 0} × ${r.height | 0}`);
  }
  const pictures = [...document.querySelectorAll("canvas, svg, .blocks")].filter(seen);
  return {
    sideways: document.documentElement.scrollWidth - innerWidth,
    small: small.slice(0, 4), labels: labels.slice(0, 4), targets: targets.slice(0, 4),
    broken: /NaN|undefined|Infinity|\[object|\de[-+]\d\d/.exec(document.body.innerText)?.[0] ?? "",
    headline: [...document.querySelectorAll("h1")].filter(seen).map((e) => e.textContent).join(),
    picture: Math.min(9999, ...pictures.map((e) => e.getBoundingClientRect().top + scrollY)),
    commands: [...document.querySelectorAll("code")].filter((e) => /^lawful /.test(e.textContent)).length,
    unnamed: [...document.querySelectorAll("canvas:not([aria-hidden]), svg:not([aria-hidden])")].filter((e) => seen(e) && !e.getAttribute("aria-label")).map((e) => e.outerHTML.slice(0, 60)),
  };
}
