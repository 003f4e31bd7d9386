"use strict";
// Live parts, searches, the theme and the keys. The server renders all HTML; nothing here builds any.

const root = document.documentElement;
const theme = document.getElementById("theme");
function show(name) {
  root.dataset.theme = name;
  theme.textContent = name === "dark" ? "Light" : "Dark";
}
show(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
theme.addEventListener("click", () => {
  const next = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", next);
  show(next);
});

const stale = document.getElementById("stale");
function follow(element, address, ends) {
  const events = new EventSource(address);
  events.addEventListener("part", (event) => {
    const focused = document.activeElement;
    const href = element.contains(focused) ? focused.getAttribute("href") : null;
    element.innerHTML = event.data;
    if (href !== null) {
      const again = [...element.querySelectorAll("a")].find((link) => link.getAttribute("href") === href);
      if (again) again.focus();
    }
  });
  events.addEventListener("end", () => events.close());
  if (!ends) events.addEventListener("open", () => (stale.hidden = true));
  events.addEventListener("error", () => {
    if (!ends) stale.hidden = false;
    else {
      events.close();
      if (element.textContent.includes("Searching")) element.textContent = "The search was refused or broke off.";
    }
  });
  return events;
}

let open = [];
function begin() {
  open = [
    ...[...document.querySelectorAll("[data-live]")].map((each) => follow(each, each.dataset.live, false)),
  ];
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    open.forEach((events) => events.close());
    open = [];
  } else if (!open.length) begin();
});
begin();
document.querySelectorAll("[data-search]").forEach((each) => follow(each, each.dataset.search, true));

document.querySelectorAll("form[data-check]").forEach((form) => {
  const into = document.getElementById(form.dataset.into);
  let waits, latest = 0;
  form.addEventListener("input", () => {
    clearTimeout(waits);
    waits = setTimeout(async () => {
      const mine = ++latest;
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(form.dataset.check, { method: "POST", body }).catch(() => null);
      const text = answer && answer.ok ? await answer.text() : "";
      if (mine !== latest) return;
      if (text) into.innerHTML = text;
      else into.textContent = "It could not be checked: the console did not answer, or the session is over.";
    }, 400);
  });
});

const goto = Object.fromEntries(
  [...document.querySelectorAll("nav [data-key]")].map((link) => [link.dataset.key, link.getAttribute("href")]),
);
let awaited = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (awaited && goto[event.key]) location.href = goto[event.key];
  awaited = event.key === "g" && !awaited;
  if (event.key === "/") {
    const field = document.querySelector("input[type=search], input[name=filter]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});
