// The slider chooses a frame; the button plays them all, for readers who do not mind motion.
for (const film of document.querySelectorAll("[data-motion]:not([data-ready])")) {
  film.dataset.ready = "";
  const { points, lines, titles } = JSON.parse(film.querySelector('script[type="application/json"]').textContent);
  const drawing = film.querySelector("svg"), slider = film.querySelector("input");
  const dots = [...drawing.querySelectorAll("circle")], rays = [...drawing.querySelectorAll("line")];
  const button = film.querySelector("button"), output = film.querySelector("output");
  // The picture takes the width of its box; its text and dots keep their size.
  const keep = () => {
    const scale = drawing.getScreenCTM()?.a || 1;
    drawing.style.setProperty("--u", 1 / scale);
    drawing.classList.toggle("narrow", scale < 0.7);
  };
  new ResizeObserver(keep).observe(drawing);
  let timer = 0;
  const show = () => {
    const frame = Number(slider.value);
    points[frame].forEach(([x, y], k) => { dots[k].setAttribute("cx", x); dots[k].setAttribute("cy", y); });
    (lines[frame] ?? []).forEach((ends, k) => ["x1", "y1", "x2", "y2"].forEach((name, i) => rays[k].setAttribute(name, ends[i])));
    output.textContent = titles[frame];
  };
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "Play"; };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) === points.length - 1) slider.value = 0;
    button.textContent = "Pause";
    show();
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      show();
      if (Number(slider.value) === points.length - 1) stop();
    }, 90);
  });
  slider.addEventListener("input", () => { stop(); show(); });
  show();
}
