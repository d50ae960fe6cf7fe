// The page shows what the server's events say, and asks for what the visitor wants. It keeps nothing else: an event has
// the whole hall, so a page that missed some is right again with the next.
"use strict";

const hold = Number(document.body.dataset.hold); // ms
const grid = document.getElementById("seats");
const tickets = document.getElementById("tickets");
const hint = document.getElementById("hint");
const message = document.getElementById("message");
const banner = document.getElementById("banner");
const buttons = [...grid.querySelectorAll("button")];
const columns = grid.querySelector(".row").querySelectorAll("button").length;

const mine = new Map(); // seat → its ticket: {node, state, end}
const asked = new Map(); // seat → what this page has asked the server for: hold, pay, release

const words = {
	free: "free",
	held: "held by somebody else",
	sold: "sold",
	mine: "held for you",
	bought: "your ticket",
};

const short = (seat) => seat.dataset.row + seat.dataset.number;

function say(text, bad = false) {
	message.textContent = text;
	message.classList.toggle("bad", bad);
}

// Events.

const events = new EventSource("/events");
events.onmessage = (event) => {
	banner.hidden = true;
	show(JSON.parse(event.data));
};
events.onerror = () => {
	if (events.readyState === EventSource.CLOSED) {
		say("This page is out of date. Please load it again.", true);
	} else {
		banner.hidden = false; // the browser goes on trying
	}
};

function show(hall) {
	for (const seat of buttons) {
		const now = hall.seats[seat.id] ?? { state: "free" };
		const before = seat.dataset.state;
		if (now.state !== before) change(seat, before, now.state);
		showTicket(seat, now);
	}
	hint.hidden = mine.size > 0;
	document.body.dataset.live = ""; // the first event is here
	if (hall.stale) say("The hall cannot be brought up to date at the moment.", true);
}

function change(seat, before, now) {
	seat.dataset.state = now;
	label(seat);
	const ended = before === "mine" && now !== "bought" && !asked.has(seat.id);
	if (ended) {
		say(`Your hold of ${short(seat)} has ended.`, true);
	} else if (seat === document.activeElement && !asked.has(seat.id)) {
		say(`${short(seat)} is now ${words[now]}.`);
	}
}

function label(seat) {
	const state = seat.dataset.state;
	seat.setAttribute("aria-label", `Row ${seat.dataset.row}, seat ${seat.dataset.number}, ${words[state]}`);
	seat.toggleAttribute("aria-disabled", false);
	if (state === "held" || state === "sold") seat.setAttribute("aria-disabled", "true");
}

// Tickets: what the visitor holds or has bought.

function showTicket(seat, now) {
	const ticket = mine.get(seat.id);
	if (now.state !== "mine" && now.state !== "bought") {
		if (ticket) removeTicket(seat, ticket);
		return;
	}
	const t = ticket ?? addTicket(seat);
	t.state = now.state;
	if (now.state === "mine") t.end = performance.now() + now.left;
	drawTicket(seat, t);
}

function addTicket(seat) {
	const node = document.getElementById("ticket").content.firstElementChild.cloneNode(true);
	node.dataset.seat = seat.id;
	node.querySelector(".place-row").textContent = seat.dataset.row;
	node.querySelector(".place-number").textContent = seat.dataset.number;
	const pay = node.querySelector(".pay");
	const release = node.querySelector(".release");
	pay.setAttribute("aria-label", `Pay for ${short(seat)}, 12 euros`);
	release.setAttribute("aria-label", `Let ${short(seat)} go`);
	pay.onclick = () => ask(seat, "pay");
	release.onclick = () => ask(seat, "release");
	const next = [...tickets.children].find((other) => other.dataset.seat > seat.id);
	tickets.insertBefore(node, next ?? null);
	const ticket = { node, state: "mine", end: 0, warned: false };
	mine.set(seat.id, ticket);
	return ticket;
}

function removeTicket(seat, ticket) {
	const focused = ticket.node.contains(document.activeElement);
	ticket.node.remove();
	mine.delete(seat.id);
	if (focused) focus(seat);
}

function drawTicket(seat, ticket) {
	const paying = asked.get(seat.id) === "pay";
	const bought = ticket.state === "bought";
	const { node } = ticket;
	if (bought && node.querySelector(".actions").contains(document.activeElement)) focus(seat);
	node.classList.toggle("paying", paying && !bought);
	node.classList.toggle("bought", bought);
	node.querySelector(".state").textContent = bought ? "Your ticket" : paying ? "Paying, it stays yours" : "Held for you";
	for (const button of node.querySelectorAll("button")) button.setAttribute("aria-disabled", String(asked.has(seat.id)));
	drawTime(seat, ticket);
}

function drawTime(seat, ticket) {
	if (ticket.state !== "mine") return;
	const paying = asked.get(seat.id) === "pay";
	const left = Math.max(0, ticket.end - performance.now());
	const seconds = Math.ceil(left / 1000);
	const soon = left < Math.min(60_000, hold / 3) && !paying;
	ticket.node.querySelector(".left").textContent = paying ? "" : `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
	ticket.node.querySelector(".bar i").style.transform = `scaleX(${Math.min(1, left / hold)})`;
	ticket.node.classList.toggle("soon", soon);
	if (soon && !ticket.warned && hold >= 60_000) say(`Less than a minute left for ${short(seat)}.`);
	ticket.warned = soon;
}

setInterval(() => {
	for (const [id, ticket] of mine) drawTime(document.getElementById(id), ticket);
}, 250);

// Asking.

async function ask(seat, what) {
	if (asked.has(seat.id)) return;
	const before = seat.dataset.state;
	asked.set(seat.id, what);
	seat.dataset.pending = "";
	if (mine.has(seat.id)) drawTicket(seat, mine.get(seat.id));
	try {
		const response = await fetch(`/seats/${seat.id}/${what}`, { method: "POST" });
		const answer = await response.json();
		say(answer.message, !response.ok);
		if (!response.ok) refuse(seat);
		await changed(seat, before, response.ok ? 2000 : 300);
	} catch {
		say(`No answer came for ${short(seat)}. What you hold stays yours; please try again.`, true);
	}
	asked.delete(seat.id);
	delete seat.dataset.pending;
	if (mine.has(seat.id)) drawTicket(seat, mine.get(seat.id));
}

// changed waits for the event that goes with an answer: until it is here, a change is no news.
async function changed(seat, before, ms) {
	for (const end = performance.now() + ms; seat.dataset.state === before && performance.now() < end; ) {
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
}

function refuse(seat) {
	seat.classList.add("refused");
	seat.addEventListener("animationend", () => seat.classList.remove("refused"), { once: true });
}

function press(seat) {
	switch (seat.dataset.state) {
		case "free":
			ask(seat, "hold");
			break;
		case "mine":
			mine.get(seat.id)?.node.querySelector(".pay").focus();
			break;
		case "bought":
			say(`${short(seat)} is your ticket.`);
			break;
		default:
			say(`${short(seat)} is ${words[seat.dataset.state]}.`, true);
			refuse(seat);
	}
}

// The keyboard. One seat is in the tab order; the arrow keys move on from it.

function focus(seat) {
	for (const other of buttons) other.tabIndex = other === seat ? 0 : -1;
	seat.focus();
}

grid.addEventListener("click", (event) => {
	const seat = event.target.closest("button");
	if (!seat) return;
	focus(seat);
	press(seat);
});

grid.addEventListener("keydown", (event) => {
	const at = buttons.indexOf(event.target);
	if (at < 0) return;
	const row = at - (at % columns);
	const to = {
		ArrowLeft: Math.max(row, at - 1),
		ArrowRight: Math.min(row + columns - 1, at + 1),
		ArrowUp: at - columns,
		ArrowDown: at + columns,
		Home: event.ctrlKey ? 0 : row,
		End: event.ctrlKey ? buttons.length - 1 : row + columns - 1,
	}[event.key];
	if (to === undefined) return;
	event.preventDefault();
	if (buttons[to]) focus(buttons[to]);
});

// Where the visitor's seats lie over the page, what is scrolled into view stops above them.
const panel = document.querySelector(".mine");
const narrow = matchMedia("(max-width: 880px) and (min-height: 560px)");
new ResizeObserver(() => {
	document.documentElement.style.scrollPaddingBottom = narrow.matches ? `${panel.offsetHeight + 16}px` : "";
}).observe(panel);

buttons[0].tabIndex = 0;
buttons.forEach(label);
