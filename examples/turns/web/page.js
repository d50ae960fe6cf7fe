// The page shows what the server's events say, and asks for new turns. It keeps nothing else: an event has all lanes, so a
// page that missed some is right again with the next.
"use strict";

const message = document.getElementById("message");
const news = document.getElementById("news");
const away = document.getElementById("away");
const states = new Map(); // number of a turn → its state, as last shown

const words = {
	queued: "waits",
	running: "runs",
	done: "done",
	stopped: "stopped for another",
	lost: "lost its hold",
	failed: "failed",
};

function say(node, text, bad = false) {
	node.textContent = text;
	node.classList.toggle("bad", bad);
}

// Events. An EventSource connects again by itself.

const events = new EventSource("/events");
events.onmessage = (event) => {
	away.hidden = true;
	for (const lane of JSON.parse(event.data)) show(lane);
	document.body.dataset.live = "";
};
events.onerror = () => { away.hidden = false; };

function show(lane) {
	const list = document.querySelector(`#${lane.name} .turns`);
	const there = new Map([...list.children].map((node) => [Number(node.dataset.number), node]));
	for (const turn of lane.turns) {
		const node = there.get(turn.number) ?? list.appendChild(card(turn));
		there.delete(turn.number);
		draw(node, turn);
		if (!states.has(turn.number)) {
			list.scrollLeft = list.scrollWidth; // side by side,
			list.scrollTop = list.scrollHeight; // or on a phone below each other
		}
		report(lane, turn);
	}
	for (const old of there.values()) old.remove();
}

function card(turn) {
	const node = document.getElementById("turn").content.firstElementChild.cloneNode(true);
	node.id = `turn-${turn.number}`;
	node.dataset.number = turn.number;
	node.dataset.replica = turn.replica;
	node.querySelector(".number").textContent = `Turn ${turn.number}`;
	node.querySelector(".replica").textContent = `replica ${turn.replica}`;
	node.querySelector("progress").setAttribute("aria-label", `Steps of turn ${turn.number}`);
	return node;
}

function draw(node, turn) {
	node.dataset.state = turn.state;
	node.dataset.steps = turn.steps;
	node.dataset.token = turn.token ?? "";
	node.toggleAttribute("data-resumed", turn.begun > 1);
	node.querySelector(".state").textContent = words[turn.state] + (turn.begun > 1 ? ", resumed" : "");
	node.querySelector("progress").value = turn.steps;
	node.querySelector(".token").textContent = turn.token ? `token ${turn.token}` : "";
}

// report says what a reader of the screen would miss: how a turn ends that does not end well.
function report(lane, turn) {
	const before = states.get(turn.number);
	states.set(turn.number, turn.state);
	if (before === undefined || before === turn.state) return;
	const name = `Turn ${turn.number} of conversation ${lane.name}`;
	if (turn.state === "lost") say(news, `${name} lost its hold. Nothing more of it is written.`, true);
	if (turn.state === "failed") say(news, `${name} failed.`, true);
	if (turn.state === "stopped") say(news, `${name} stopped, as another has asked.`);
}

// Asking.

async function ask(lane, query) {
	try {
		const response = await fetch(`/conversations/${lane.id}/turns${query}`, { method: "POST" });
		say(message, (await response.json()).message, !response.ok);
	} catch {
		say(message, "No answer came. The turn may be in the queue.", true);
	}
}

for (const lane of document.querySelectorAll(".lane")) {
	lane.querySelector(".add").onclick = () => ask(lane, "");
	lane.querySelector(".stop").onclick = () => ask(lane, "?stop=1");
}
