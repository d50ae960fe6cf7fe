// The page shows what the server's events say, and asks for what the visitor wants. It keeps nothing else: an event has
// the whole hall, so a page that missed some is right again with the next.
"use strict";

const hold = Number(document.body.dataset.hold); // ms
const price = Number(document.body.dataset.price); // euros
const grid = document.getElementById("seats");
const tickets = document.getElementById("tickets");
const hint = document.getElementById("hint");
const message = document.getElementById("message");
const news = document.getElementById("news");
const banner = document.getElementById("banner");
const stale = document.getElementById("stale");
const payAll = document.getElementById("pay-all");
const code = document.getElementById("code");
const buttons = [...grid.querySelectorAll("button")];
const columns = grid.querySelector(".row").querySelectorAll("button").length;

const mine = new Map(); // seat → its ticket: {node, state, end, released}; state is mine, bought, or ended until it is picked again or dismissed; released: the server has let it go
const asked = new Map(); // seat → what this page has asked the server for: hold, pay, release

const slack = 3000; // ms: by so much, at most, two events differ in when a hold ends

const words = {
	free: "free",
	held: "held by another visitor",
	sold: "sold",
	mine: "held for you",
	bought: "your ticket",
	unknown: "not to be had at the moment",
};

const short = (seat) => seat.dataset.row + seat.dataset.number;

// list names seats as the server does.
function list(seats) {
	const names = seats.map(short);
	return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names.join();
}

// say shows the answer to what the visitor has done. It stays until the next one.
function say(text, bad = false) {
	put(message, text, bad);
	put(news, "");
}

// report shows what happened without the visitor. It stands below the last answer, which it does not replace.
function report(text, bad = false) {
	put(news, text, bad);
}

function put(node, text, bad = false) {
	node.textContent = text;
	node.classList.toggle("bad", bad);
}

// Events. When a server does not answer, the pauses before the next try double; by chance some are shorter, so that not all
// pages come back to a server at the same moment.

const firstPause = 1000, longestPause = 30_000; // ms
let pause = firstPause;
let events, retry;

function listen() {
	clearTimeout(retry);
	events?.close();
	events = new EventSource("/events");
	events.onmessage = (event) => {
		pause = firstPause;
		banner.hidden = true;
		show(JSON.parse(event.data));
	};
	events.onerror = () => {
		const refused = events.readyState === EventSource.CLOSED;
		events.close();
		if (refused) {
			say("This page is out of date. Please load it again.", true);
			return;
		}
		banner.hidden = false;
		retry = setTimeout(listen, pause * (0.5 + Math.random() / 2));
		pause = Math.min(2 * pause, longestPause);
	};
}

addEventListener("online", listen);

function show(hall) {
	for (const seat of buttons) {
		const now = hall.seats[seat.id] ?? { state: "free" };
		const before = seat.dataset.state;
		if (now.state !== before) change(seat, before, now.state);
		showTicket(seat, now, before);
	}
	stale.hidden = !hall.stale;
	drawSum(hall.code);
	document.body.dataset.live = ""; // the first event is here
	showLocks();
}

function change(seat, before, now) {
	seat.dataset.state = now;
	label(seat);
	const ended = before === "mine" && now !== "bought" && !asked.has(seat.id) && !mine.get(seat.id)?.released;
	if (ended) {
		report(`Your hold of ${short(seat)} has ended.`, true);
	} else if (seat === document.activeElement && !asked.has(seat.id)) {
		report(`${short(seat)} is now ${words[now]}.`);
	}
}

function label(seat) {
	const state = seat.dataset.state;
	const place = "wheelchair" in seat.dataset ? "wheelchair place, " : "";
	seat.setAttribute("aria-label", `Row ${seat.dataset.row}, seat ${seat.dataset.number}, ${place}${words[state]}`);
	seat.toggleAttribute("aria-disabled", false);
	if (["held", "sold", "unknown"].includes(state)) seat.setAttribute("aria-disabled", "true");
}

// Tickets: what the visitor holds or has bought.

function showTicket(seat, now, before) {
	let ticket = mine.get(seat.id);
	if (now.state !== "mine" && now.state !== "bought") {
		if (!ticket) return;
		const gone = asked.get(seat.id) === "release" || ticket.released;
		if (before === "mine" && gone) removeTicket(seat, ticket);
		else endTicket(seat, ticket, now.state);
		return;
	}
	ticket ??= addTicket(seat);
	ticket.state = now.state;
	const end = performance.now() + (now.left ?? 0);
	// An event may be older than the answer to what let the seat go. Only a later end shows that the seat is held anew.
	if (now.state === "bought" || end > ticket.end + slack) ticket.released = false;
	if (now.state === "mine") ticket.end = end;
	drawTicket(seat, ticket);
}

// endTicket leaves a ticket whose hold has ended, to pick the seat again if it is free.
function endTicket(seat, ticket, now) {
	const again = ticket.node.querySelector(".again");
	ticket.state = "ended";
	if (now !== "free" && document.activeElement === again) focus(seat);
	again.hidden = now !== "free";
	drawTicket(seat, ticket);
}

function addTicket(seat) {
	const node = document.getElementById("ticket").content.firstElementChild.cloneNode(true);
	node.dataset.seat = seat.id;
	node.querySelector(".place-row").textContent = seat.dataset.row;
	node.querySelector(".place-number").textContent = seat.dataset.number;
	const pay = node.querySelector(".pay");
	const release = node.querySelector(".release");
	const again = node.querySelector(".again");
	pay.setAttribute("aria-label", `Pay for ${short(seat)}, ${price} euros`);
	again.setAttribute("aria-label", `Pick ${short(seat)} again`);
	pay.onclick = () => ask("pay", seat);
	again.onclick = () => ask("hold", seat);
	release.onclick = () => (mine.get(seat.id).state === "ended" ? removeTicket(seat, mine.get(seat.id)) : ask("release", seat));
	const next = [...tickets.children].find((other) => other.dataset.seat > seat.id);
	tickets.insertBefore(node, next ?? null);
	const ticket = { node, state: "mine", end: 0, released: false, warned: false };
	mine.set(seat.id, ticket);
	return ticket;
}

function removeTicket(seat, ticket) {
	const focused = ticket.node.contains(document.activeElement);
	ticket.node.remove();
	mine.delete(seat.id);
	if (focused) focus(seat);
	drawSum();
}

function drawTicket(seat, ticket) {
	const paying = asked.get(seat.id) === "pay";
	const bought = ticket.state === "bought";
	const ended = ticket.state === "ended";
	const { node } = ticket;
	if (bought && node.querySelector(".actions").contains(document.activeElement)) focus(seat);
	if (ended && document.activeElement === node.querySelector(".pay")) focus(seat);
	node.classList.toggle("paying", paying && ticket.state === "mine");
	node.classList.toggle("bought", bought);
	node.classList.toggle("ended", ended);
	node.classList.toggle("soon", false);
	const taken = ended && seat.dataset.state !== "free";
	const text = { mine: paying ? "Paying, it stays yours" : "Held for you", bought: "Your ticket", ended: "Your hold has ended" };
	node.querySelector(".state").textContent = text[ticket.state] + (taken ? `, and it is ${words[seat.dataset.state]}` : "");
	const release = node.querySelector(".release");
	release.textContent = ended ? "Dismiss" : "Let go";
	release.setAttribute("aria-label", ended ? `Dismiss ${short(seat)}` : `Let ${short(seat)} go`);
	for (const button of node.querySelectorAll("button")) button.setAttribute("aria-disabled", String(asked.has(seat.id)));
	drawTime(seat, ticket);
}

// drawSum draws what all seats together cost, and the code of those that are paid for, which an event may bring.
function drawSum(ticketCode) {
	const held = inState("mine");
	const bought = inState("bought");
	const paying = held.some((seat) => asked.has(seat.id));
	if (held.length < 2 && document.activeElement === payAll) focus(held[0] ?? bought[0] ?? buttons[0]);
	payAll.hidden = held.length < 2;
	payAll.textContent = `Pay for all ${held.length} seats, €${price * held.length}`;
	payAll.setAttribute("aria-disabled", String(paying));
	hint.hidden = mine.size > 0;
	code.hidden = bought.length === 0;
	if (ticketCode) code.querySelector("strong").textContent = ticketCode;
	code.querySelector("span").textContent = `for ${list(bought)}. Show it at the door.`;
}

// inState gives the seats whose ticket has a state, in their order in the hall.
function inState(state) {
	return buttons.filter((seat) => mine.get(seat.id)?.state === state);
}

payAll.onclick = () => ask("pay", ...inState("mine"));

function drawTime(seat, ticket) {
	if (ticket.state !== "mine") return;
	const paying = asked.get(seat.id) === "pay";
	const left = Math.max(0, ticket.end - performance.now());
	const seconds = Math.ceil(left / 1000);
	const soon = left < Math.min(60_000, hold / 3) && !paying;
	ticket.node.querySelector(".left").textContent = paying ? "" : `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
	ticket.node.querySelector(".bar i").style.transform = `scaleX(${Math.min(1, left / hold)})`;
	ticket.node.classList.toggle("soon", soon);
	if (soon && !ticket.warned && hold >= 60_000) report(`Less than a minute left for ${short(seat)}.`);
	ticket.warned = soon;
}

setInterval(() => {
	for (const [id, ticket] of mine) drawTime(document.getElementById(id), ticket);
}, 250);

// The locks behind the seats, while the visitor wants to see them.

const locks = document.getElementById("locks");
locks.addEventListener("toggle", showLocks);

const counted = (n, thing) => `${n} ${thing}${n === 1 ? "" : "s"}`;

async function showLocks() {
	if (!locks.open) return;
	try {
		const seen = await (await fetch("/locks")).json();
		locks.querySelector("tbody").replaceChildren(...seen.locks.map((lock) => {
			const row = document.createElement("tr");
			const until = new Date(Date.now() + lock.left).toLocaleTimeString([], { hour12: false });
			for (const text of [lock.lock, lock.token, lock.server, until]) row.insertCell().textContent = text;
			return row;
		}));
		const here = document.querySelector(".servers .here").textContent;
		locks.querySelector(".cost").textContent =
			`${here} has sent Redis ${counted(seen.commands, "command")} for its visitors, and got ${counted(seen.taken, "lock")} by them.`;
	} catch {
		// The banner says that the server does not answer.
	}
}

// Asking.

async function ask(what, ...seats) {
	if (seats.length === 0 || seats.some((seat) => asked.has(seat.id))) return;
	const before = seats[0].dataset.state;
	for (const seat of seats) {
		asked.set(seat.id, what);
		seat.dataset.pending = "";
	}
	draw(seats);
	try {
		const response = await fetch(`/seats/${seats.map((seat) => seat.id).join()}/${what}`, { method: "POST" });
		const answer = await response.json();
		say(answer.message, !response.ok);
		if (!response.ok) seats.forEach(refuse);
		else if (what === "release" && mine.has(seats[0].id)) mine.get(seats[0].id).released = true;
		await changed(seats[0], before, response.ok ? 2000 : 300);
	} catch {
		say(`No answer came for ${list(seats)}. What you hold stays yours: ${elsewhere()}.`, true);
	}
	for (const seat of seats) {
		asked.delete(seat.id);
		delete seat.dataset.pending;
	}
	draw(seats);
}

// elsewhere says where to go on when this server does not answer.
function elsewhere() {
	const others = [...document.querySelectorAll(".servers a")].map((other) => other.textContent.toLowerCase());
	return others.length === 0 ? "please try again" : `${others.join(" or ")} can go on with it`;
}

function draw(seats) {
	for (const seat of seats) if (mine.has(seat.id)) drawTicket(seat, mine.get(seat.id));
	drawSum();
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
			ask("hold", seat);
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
listen();
