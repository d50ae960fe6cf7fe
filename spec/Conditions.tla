------------------------------ MODULE Conditions ------------------------------
(* One condition of one lock, as docs/protocol.md describes it: owners that wait for it, those that signal it, and a network
   that loses, doubles and reorders what they send. README.md says what is left out. Each rule has a name, by which a model
   can switch it off; rules.list has what then goes wrong.

   How a session gets the lock is Relock's matter. Here it has the lock in one step, when the lock is free or given to it,
   and a given lock that it does not take is free again. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Sessions,
    Waiters,      \* those that may wait; the others lock once
    Off,          \* the names of the rules that are switched off
    Patience,     \* the ticks of a ticket, or of a signal that is not acknowledged, without a heartbeat
    MaxEpoch,     \* how many epochs a waiter has, for holds and tickets
    MaxSignals,   \* how many signals there are
    MaxMessages,  \* how many messages are under way at once
    MaxLosses     \* how many holds end unnoticed

VARIABLES
    server,   \* what Redis keeps of the lock and its condition
    net,      \* the messages under way
    session,  \* what each session knows
    world     \* which faults there have been, and what the properties need to remember
vars == <<server, net, session, world>>

Rule(name) == name \notin Off
Less(x) == IF x = 0 THEN 0 ELSE x - 1
Nobody == "nobody"

(* ------------------------------------------------------------------------------------------------ the messages *)

\* e is the epoch of the hold that a command is about, t the ticket. n numbers the signals of a hold; of a beat, 1 says that
\* the owner has the lock again.
Message(kind, s, e, t, n) == [kind |-> kind, s |-> s, e |-> e, t |-> t, n |-> n]
Requests == {"await", "signal", "withdraw", "beat"}

\* What a session makes of a reply or a message. What would change nothing need not arrive.
Heard(me, m) ==
    LET mine == m.t = me.ticket
    IN  CASE me.phase = "leaving" /\ mine /\ m.kind = "waiting" -> [me EXCEPT !.phase = "waiting"]
          [] me.phase \in {"leaving", "waiting"} /\ mine /\ m.kind = "woken" ->
                [me EXCEPT !.phase = "returning", !.woken = TRUE]
          [] me.phase = "leaving" /\ mine /\ m.kind = "gone" -> [me EXCEPT !.phase = "idle", !.ticket = 0]
          [] me.phase = "signalling" /\ m.kind \in {"done", "gone"} /\ m.e = me.hold /\ m.n = me.op ->
                [me EXCEPT !.phase = IF m.kind = "done" THEN "holding" ELSE "idle"]
          [] me.phase = "withdrawing" /\ mine /\ m.kind \in {"signalled", "withdrawn"} ->
                [me EXCEPT !.phase = "returning", !.woken = m.kind = "signalled"]
          [] me.phase \in {"idle", "holding"} /\ mine /\ m.kind = "acknowledged" -> [me EXCEPT !.woken = FALSE, !.ticket = 0]
          [] OTHER -> me

Sent(old, new, ss) == {m \in old \cup new: m.kind \in Requests \/ Heard(ss[m.s], m) # ss[m.s]}

(* -------------------------------------------------------------------------------------------------------- Redis *)

\* A hold of epoch 0 was given to a session that waits, and not yet taken. Tickets are in the order of arrival.
Empty == [owner |-> Nobody, e |-> 0, op |-> 0, queue |-> <<>>, tickets |-> <<>>, signalled |-> {}]

Result(srv, out) == [srv |-> srv, out |-> out]
Ticket(s, t) == [s |-> s, t |-> t, left |-> Patience]
Same(x, s, t) == x.s = s /\ x.t = t
Waits(srv, s, t) == \E i \in DOMAIN srv.tickets: Same(srv.tickets[i], s, t)
Signalled(srv, s, t) == \E x \in srv.signalled: Same(x, s, t)
Queued(srv, s) == \E i \in DOMAIN srv.queue: srv.queue[i] = s
WithoutTicket(seq, s, t) == SelectSeq(seq, LAMBDA x: ~Same(x, s, t))
WithoutSignal(set, s, t) == {x \in set: ~Same(x, s, t)}
Holds(srv, m) == srv.owner = m.s /\ srv.e = m.e

Given(srv, s, e) == [srv EXCEPT !.owner = s, !.e = e, !.op = 0, !.queue = SelectSeq(@, LAMBDA x: x # s)]

\* The lock is free, and goes to the first that waits for it.
Freed(srv) ==
    LET free == [srv EXCEPT !.owner = Nobody, !.e = 0]
    IN  IF srv.queue = <<>> THEN free ELSE Given(free, Head(srv.queue), 0)

Place(srv, s) == IF srv.owner = s \/ Queued(srv, s) THEN srv ELSE [srv EXCEPT !.queue = Append(@, s)]
IfFree(srv) == IF srv.owner = Nobody THEN Freed(srv) ELSE srv

\* The first ticket that is live is signalled, and its session gets a place. Dead ones before it are dropped.
RECURSIVE Notify(_, _)
Notify(srv, out) ==
    IF srv.tickets = <<>> THEN Result(srv, out)
    ELSE LET i == IF Rule("longest first") THEN 1 ELSE Len(srv.tickets)
             x == srv.tickets[i]
             rest == [srv EXCEPT !.tickets = WithoutTicket(@, x.s, x.t)]
         IN  IF x.left = 0 THEN Notify(rest, out)
             ELSE Result(Place([rest EXCEPT !.signalled = @ \cup {Ticket(x.s, x.t)}], x.s),
                         out \cup {Message("woken", x.s, 0, x.t, 0)})

\* A signal that was not acknowledged in time goes to the next waiter.
RECURSIVE Recalled(_, _)
Recalled(srv, out) ==
    LET late == {x \in srv.signalled: x.left = 0}
    IN  IF late = {} \/ ~Rule("recall") THEN Result(srv, out)
        ELSE LET x == CHOOSE x \in late: TRUE
                 r == Notify([srv EXCEPT !.signalled = @ \ {x}], out)
             IN  Recalled(r.srv, r.out)

Await(m) ==
    LET reply(kind) == {Message(kind, m.s, m.e, m.t, 0)}
        in == [server EXCEPT !.tickets = Append(@, Ticket(m.s, m.t))]
    IN  CASE Holds(server, m) -> Result(Freed(in), reply("waiting"))
          [] Waits(server, m.s, m.t) -> Result(server, reply("waiting"))
          [] Signalled(server, m.s, m.t) -> Result(server, reply("woken"))
          [] Rule("ticket for a hold") -> Result(server, reply("gone"))
          [] OTHER -> Result(in, reply("waiting"))

Signal(m) ==
    LET done == {Message("done", m.s, m.e, 0, m.n)}
        recalled == Recalled(server, done)
        r == Notify(recalled.srv, recalled.out)
    IN  CASE ~Holds(server, m) /\ Rule("signal of a hold") -> Result(server, {Message("gone", m.s, m.e, 0, m.n)})
          [] m.n <= server.op /\ Rule("signal once") -> Result(server, done)
          [] OTHER -> Result([r.srv EXCEPT !.op = m.n], r.out)

Withdraw(m) ==
    LET reply(kind) == {Message(kind, m.s, 0, m.t, 0)}
    IN  CASE Signalled(server, m.s, m.t) /\ Rule("signal came first") -> Result(server, reply("signalled"))
          [] OTHER -> Result([server EXCEPT !.tickets = IF Rule("withdrawal") THEN WithoutTicket(@, m.s, m.t) ELSE @,
                                            !.signalled = WithoutSignal(@, m.s, m.t)],
                             reply("withdrawn"))

\* A heartbeat prolongs the ticket or its signal, or acknowledges the signal. The reply says what has become of the ticket.
Beat(m) ==
    LET again(x) == IF Same(x, m.s, m.t) THEN [x EXCEPT !.left = Patience] ELSE x
        kept == [server EXCEPT !.tickets = [i \in DOMAIN @ |-> again(@[i])],
                               !.signalled = IF m.n = 1 THEN WithoutSignal(@, m.s, m.t) ELSE {again(x): x \in @}]
        kind == IF m.n = 1 THEN "acknowledged" ELSE IF Waits(server, m.s, m.t) THEN "waits" ELSE "woken"
        r == Recalled(kept, {Message(kind, m.s, 0, m.t, 0)})
    IN  Result(IfFree(r.srv), r.out)

Executed(m) == CASE m.kind = "await" -> Await(m)
                 [] m.kind = "signal" -> Signal(m)
                 [] m.kind = "withdraw" -> Withdraw(m)
                 [] m.kind = "beat" -> Beat(m)

Ids(set) == {<<x.s, x.t>>: x \in set}
Range(seq) == {seq[i]: i \in DOMAIN seq}

Execute(m, doubled) ==
    /\ m.kind \in Requests
    /\ doubled => ~world.calm
    /\ \E r \in {Executed(m)}: \* once: TLC evaluates what LET names again and again
           LET woken == Ids(r.srv.signalled) \ Ids(server.signalled)
           IN  /\ server' = r.srv
               /\ net' = Sent(IF doubled THEN net ELSE net \ {m}, r.out, session)
               /\ world' = [world EXCEPT !.woken = @ \cup woken]
               /\ UNCHANGED session

(* ----------------------------------------------------------------------------------------------------- sessions *)

\* ticket is that of the wait under way, and of the signal to acknowledge after it; woken says that it was signalled.
Idle == [phase |-> "idle", epoch |-> 0, hold |-> 0, op |-> 0, ticket |-> 0, woken |-> FALSE, beaten |-> FALSE]
Asks == {"leaving", "signalling", "waiting", "withdrawing"}

Room == Cardinality(net) < MaxMessages

\* What a session says, and says again with each heartbeat until it has the reply.
Said(s, me) ==
    CASE me.phase = "leaving" -> {Message("await", s, me.hold, me.ticket, 0)}
      [] me.phase = "signalling" -> {Message("signal", s, me.hold, 0, me.op)}
      [] me.phase = "withdrawing" -> {Message("withdraw", s, 0, me.ticket, 0)}
      [] me.phase = "waiting" /\ Rule("heartbeat") -> {Message("beat", s, 0, me.ticket, 0)}
      [] me.phase = "returning" /\ me.woken ->
            {Message("beat", s, 0, me.ticket, IF Rule("acknowledged when back") THEN 0 ELSE 1)}
      [] me.phase \in {"idle", "holding"} /\ me.woken -> {Message("beat", s, 0, me.ticket, 1)}
      [] OTHER -> {}

Become(s, changed) == session' = [session EXCEPT ![s] = changed]

Say(s, changed) ==
    /\ Room
    /\ Become(s, changed)
    /\ net' = Sent(net, Said(s, changed), session')
    /\ UNCHANGED server

BeatAgain(s) ==
    LET me == session[s]
    IN  /\ ~me.beaten /\ Said(s, me) # {}
        /\ Say(s, [me EXCEPT !.beaten = TRUE])
        /\ UNCHANGED world

\* A session that wants the lock, or wants it again, takes it; before that it takes a place.
CanTake(s) == (server.owner = s /\ server.e = 0) \/ (server.owner = Nobody /\ server.queue = <<>>)
Take(s) ==
    LET me == session[s]
    IN  /\ me.phase \in {"idle", "returning"} /\ me.epoch < (IF s \in Waiters THEN MaxEpoch ELSE 1) /\ CanTake(s)
        /\ server' = Given(server, s, me.epoch + 1)
        /\ Become(s, [me EXCEPT !.phase = "holding", !.epoch = @ + 1, !.hold = me.epoch + 1, !.op = 0])
        /\ world' = IF me.phase = "returning" /\ me.woken THEN [world EXCEPT !.back = @ \cup {<<s, me.ticket>>}] ELSE world
        /\ net' = Sent(net, {}, session')

Join(s) ==
    /\ session[s].phase = "returning" /\ server.owner # s /\ ~Queued(server, s)
    /\ server' = IfFree(Place(server, s))
    /\ UNCHANGED <<net, session, world>>

Unlock(s) ==
    /\ session[s].phase = "holding"
    /\ server' = IF server.owner = s /\ server.e = session[s].hold THEN Freed(server) ELSE server
    /\ Become(s, [session[s] EXCEPT !.phase = "idle"])
    /\ net' = Sent(net, {}, session')
    /\ UNCHANGED world

StartAwait(s) ==
    LET me == session[s]
    IN  /\ s \in Waiters /\ me.phase = "holding" /\ ~me.woken /\ me.epoch + 1 < MaxEpoch
        /\ Say(s, [me EXCEPT !.phase = "leaving", !.epoch = @ + 1, !.ticket = me.epoch + 1, !.beaten = TRUE])
        /\ UNCHANGED world

StartSignal(s) ==
    LET me == session[s]
    IN  /\ me.phase = "holding" /\ world.signals < MaxSignals
        /\ Say(s, [me EXCEPT !.phase = "signalling", !.op = @ + 1, !.beaten = TRUE])
        /\ world' = [world EXCEPT !.signals = @ + 1]

\* The time of a wait is up.
GiveUp(s) ==
    /\ session[s].phase = "waiting"
    /\ Say(s, [session[s] EXCEPT !.phase = "withdrawing", !.beaten = TRUE])
    /\ UNCHANGED world

Hear(m) ==
    /\ m.kind \notin Requests
    /\ Become(m.s, Heard(session[m.s], m))
    /\ net' = Sent(net \ {m}, {}, session')
    /\ UNCHANGED <<server, world>>

(* ------------------------------------------------------------------------------------------------ time and faults *)

\* The lock that a session was given and did not take is free again, and so is that of a dead one.
Untaken == /\ server.owner # Nobody
           /\ \/ session[server.owner].phase = "dead"
              \/ server.e = 0 /\ session[server.owner].phase # "returning"
Lapse == Untaken /\ server' = Freed(server) /\ UNCHANGED <<net, session, world>>

\* When the faults have ended, a tick is longer than messages take, and no session misses a heartbeat or leaves a lock that
\* it was given.
Busy(s) == \/ Said(s, session[s]) # {} /\ ~session[s].beaten
           \/ session[s].phase = "returning" /\ (CanTake(s) \/ (~Queued(server, s) /\ server.owner # s))
Tick ==
    /\ world.calm => net = {} /\ ~Untaken /\ \A s \in Sessions: ~Busy(s)
    /\ server' = [server EXCEPT !.tickets = [i \in DOMAIN @ |-> [@[i] EXCEPT !.left = Less(@)]],
                                !.signalled = {[x EXCEPT !.left = Less(@)]: x \in @}]
    /\ session' = [s \in Sessions |-> [session[s] EXCEPT !.beaten = FALSE]]
    /\ world' = [world EXCEPT !.late = @ \/ \E x \in Range(server.tickets) \cup server.signalled: x.left = 1]
    /\ net' = Sent(net, {}, session')

Lose(m) == ~world.calm /\ net' = net \ {m} /\ UNCHANGED <<server, session, world>>

\* A hold ends, and its session notices; what it has sent may still arrive.
LoseHold(s) ==
    /\ ~world.calm /\ world.losses < MaxLosses
    /\ session[s].phase \in {"holding", "signalling"} /\ server.owner = s
    /\ server' = Freed(server)
    /\ Become(s, [session[s] EXCEPT !.phase = "idle"])
    /\ world' = [world EXCEPT !.losses = @ + 1]
    /\ net' = Sent(net, {}, session')

Die(s) ==
    /\ ~world.calm /\ session[s].phase # "dead"
    /\ Become(s, [Idle EXCEPT !.phase = "dead", !.epoch = MaxEpoch])
    /\ net' = Sent(net, {}, session')
    /\ UNCHANGED <<server, world>>

\* woken has the tickets that were ever signalled, back those whose owners had the lock again after it.
Start == [calm |-> FALSE, losses |-> 0, signals |-> 0, late |-> FALSE, woken |-> {}, back |-> {}]

Init ==
    /\ server = Empty /\ net = {}
    /\ session = [s \in Sessions |-> Idle] /\ world = Start

Arrive == \E m \in net: Execute(m, FALSE) \/ Hear(m)
Returns == \E s \in Sessions: session[s].phase = "returning" /\ (Take(s) \/ Join(s))
Goes == Tick \/ Arrive \/ Lapse \/ Returns \/ \E s \in Sessions: BeatAgain(s)
Leaves == \E s \in Sessions: Unlock(s)

Next ==
    \/ Goes \/ Leaves
    \/ \E s \in Sessions: Take(s) \/ StartAwait(s) \/ StartSignal(s) \/ GiveUp(s) \/ LoseHold(s) \/ Die(s)
    \/ \E m \in net: Execute(m, TRUE) \/ Lose(m)

SafetySpec == Init /\ [][Next]_vars

(* Once the faults have ended: whatever they have left behind, which is more than they can. Waiters are dead, wait, or come back
   with the signal or without, whatever they know of it; the lock is anyone's, or was given and not taken. *)
Left(p) == [Idle EXCEPT !.phase = IF p = "woken" THEN "returning" ELSE p, !.epoch = 2, !.hold = 1, !.ticket = 2,
                        !.woken = p = "woken"]
Other(p) == [Idle EXCEPT !.phase = p, !.epoch = 1, !.hold = 1]
Orders(set) == {seq \in UNION {[1..n -> set]: n \in 0..Cardinality(set)}: \A i, j \in DOMAIN seq: seq[i] = seq[j] => i = j}

AfterFaults ==
    /\ net = {}
    /\ \E phases \in [Waiters -> {"dead", "leaving", "waiting", "withdrawing", "returning", "woken"}],
          others \in {"dead", "holding"}:
          session = [s \in Sessions |-> IF s \in Waiters THEN Left(phases[s]) ELSE Other(others)]
    /\ \E tickets \in Orders(Waiters), signalled \in SUBSET Waiters, queue \in Orders(Waiters), owner \in Sessions:
          /\ \A s \in Waiters: session[s].phase = "returning" => \A i \in DOMAIN tickets: tickets[i] # s
          /\ \A s \in signalled: /\ ~(session[s].phase = "returning" /\ ~session[s].woken)
                                 /\ \A i \in DOMAIN tickets: tickets[i] # s
          /\ \A i \in DOMAIN queue: queue[i] # owner
          /\ server = [Empty EXCEPT !.owner = owner, !.e = IF owner \in Waiters THEN 0 ELSE 1, !.queue = queue,
                !.tickets = [i \in DOMAIN tickets |-> [s |-> tickets[i], t |-> 2, left |-> Patience]],
                !.signalled = {[s |-> s, t |-> 2, left |-> Patience]: s \in signalled}]
    /\ world = [Start EXCEPT !.calm = TRUE]

LiveNext == Goes \/ Leaves \/ \E s \in Sessions: StartSignal(s) \/ GiveUp(s)
LiveSpec == AfterFaults /\ [][LiveNext]_vars /\ WF_vars(Goes) /\ WF_vars(Leaves)

Symmetry == Permutations(Waiters)

(* --------------------------------------------------------------------------------------------------- properties *)

Newly == Ids(server'.signalled) \ Ids(server.signalled)
Taken == Ids(server.signalled) \ Ids(server'.signalled)
Overdue == \E x \in server.signalled: x.left = 0

\* A signal wakes one waiter, however often it arrives, unless a session was silent for too long.
WakesOne == ~world.late => Cardinality(world.woken) <= world.signals

\* A waiter is signalled by the session that has the lock, or gets the signal of one that did not acknowledge it.
ByHolder == [][Newly # {} => Overdue \/ \E m \in net: m.kind = "signal" /\ Holds(server, m)]_vars

\* A signal ends when its owner has had the lock again. Else it goes to another waiter, if there is one.
SignalKept ==
    [][\/ Cardinality(Taken \ world.back) <= Cardinality(Newly)
       \/ \A x \in Range(server'.tickets): x.left = 0]_vars

\* Waiters are signalled in the order in which they began to wait, but for those that are silent.
InOrder ==
    [][\A i, j \in DOMAIN server.tickets:
        LET x == server.tickets[i]  y == server.tickets[j]
        IN  i < j /\ <<y.s, y.t>> \in Newly => x.left = 0 \/ <<x.s, x.t>> \in Newly]_vars

\* No ticket waits whose owner does not: it was signalled, has withdrawn, or never began.
NoOrphan ==
    \A x \in Range(server.tickets):
        \/ session[x.s].phase = "dead"
        \/ session[x.s].ticket = x.t /\ session[x.s].phase \in {"leaving", "waiting", "withdrawing"}

\* An owner whose wait ended without a signal left none behind.
NotSpent ==
    \A s \in Sessions: session[s].phase = "returning" /\ ~session[s].woken => ~Signalled(server, s, session[s].ticket)

\* A waiter that is signalled learns of it and has the lock again, and every wait whose time is up ends.
Returned ==
    /\ \A s \in Sessions:
          session[s].phase = "waiting" /\ Signalled(server, s, session[s].ticket) ~> session[s].phase # "waiting"
    /\ \A s \in Sessions:
          session[s].phase \in {"leaving", "withdrawing", "returning"} ~> session[s].phase \in {"waiting", "holding", "idle", "dead"}

\* The signal of a dead waiter does not stay with it while another waits.
PassedOn ==
    LET stays == \E x \in server.signalled: session[x.s].phase = "dead"
        waits == \E s \in Sessions: session[s].phase = "waiting"
    IN  stays /\ waits ~> ~stays \/ ~waits
=============================================================================
