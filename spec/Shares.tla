------------------------------- MODULE Shares -------------------------------
(* The protocol of a shared name, as the last part of docs/protocol.md describes it: sessions have units, a reader one and
   a writer all of them. README.md says what is left out. Time, names of rules and the network are those of Relock.tla. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Sessions, Off,
    Limit,        \* the units of the name
    Wants,        \* what sessions may ask for
    Lease, GrantTTL, Deadline, NotAfter, \* in ticks
    MaxEpoch, MaxMessages,
    MaxFlushes,   \* how often Redis forgets the name
    Tokens        \* whether there are tokens: without, there are fewer states

VARIABLES server, net, session, world
vars == <<server, net, session, world>>

Rule(name) == name \notin Off
Max(S) == CHOOSE x \in S: \A y \in S: y <= x
Min(x, y) == IF x < y THEN x ELSE y
Less(x) == IF x = 0 THEN 0 ELSE x - 1
Minus(x, y) == IF x > y THEN x - y ELSE 0
RECURSIVE Sum(_, _)
Sum(f, S) == IF S = {} THEN 0 ELSE LET s == CHOOSE s \in S: TRUE IN f[s] + Sum(f, S \ {s})

(* ------------------------------------------------------------------------------------------------ the messages *)

\* A request says what its session keeps, under which token, and what it wants in total; a reply or a push how many units
\* it has, under which token, and what the request kept. age counts from the sending of the request, in a push from the grant.
\* run: a copy of it has been executed.
Request(s, e, keep, want, under) ==
    [kind |-> "share", s |-> s, e |-> e, age |-> 0, keep |-> keep, want |-> want, token |-> under, run |-> FALSE]
Reply(kind, s, e, age, units, token) ==
    [kind |-> kind, s |-> s, e |-> e, age |-> age, units |-> units, token |-> token, kept |-> 0]
Replied(m, kind, units, token) == [Reply(kind, m.s, m.e, m.age, units, token) EXCEPT !.kept = m.keep]

Ignored(m, ss) == \/ m.kind # "share" /\ ss[m.s].phase = "dead"
                  \/ m.kind \notin {"share", "wanted"} /\ m.e # ss[m.s].epoch
                  \/ m.kind = "wanted" /\ (ss[m.s].has = 0 \/ ss[m.s].wanted)
                  \/ m.kind = "share" /\ m.age > NotAfter /\ Rule("not after")
Sent(old, new, ss) == {m \in old \cup new: ~Ignored(m, ss)}
Older(m) == [m EXCEPT !.age = IF @ < Lease THEN @ + 1 ELSE Lease]

(* -------------------------------------------------------------------------------------------------------- Redis *)

\* memory: the ticks for which a copy of a request may still be executed.
NoEntry == [e |-> 0, units |-> 0, left |-> 0, token |-> 0, memory |-> 0]
Empty == [entries |-> [s \in Sessions |-> NoEntry], queue |-> <<>>, last |-> 0]

Units(srv, s) == srv.entries[s].units
Others(srv, s) == Sum([t \in Sessions |-> srv.entries[t].units], Sessions \ {s})
At(srv, s) == IF \E i \in DOMAIN srv.queue: srv.queue[i].s = s
              THEN CHOOSE i \in DOMAIN srv.queue: srv.queue[i].s = s ELSE 0
Without(seq, s) == SelectSeq(seq, LAMBDA p: p.s # s)
Fits(srv, s, want) == want + (IF Rule("limit") THEN Others(srv, s) ELSE 0) <= Limit

\* Tokens are even. A writer gets a new one, and readers come under the last one.
NewToken(srv) == Max({srv.last + 2, IF Rule("token by the clock") THEN world.top + 2 ELSE 2})
Token(srv, want) ==
    IF ~Tokens THEN 0
    ELSE IF want = Limit \/ srv.last = 0 THEN NewToken(srv) ELSE srv.last

\* A session gets what it wants. The token under which it has its first unit stays while it has any.
Given(srv, s, want, ticks) ==
    LET token == Token(srv, want)
    IN  [srv EXCEPT !.entries[s].units = want, !.entries[s].left = Max({IF Rule("longer lease") THEN @ ELSE 0, ticks}),
                    !.entries[s].token = IF Units(srv, s) = 0 \/ ~Rule("token stays") THEN token ELSE @,
                    !.last = Max({@, token}), !.queue = Without(@, s)]

\* Only the head is served, and then the next, while they fit.
Serves(srv) == srv.queue # <<>> /\ Fits(srv, Head(srv.queue).s, Head(srv.queue).want)
RECURSIVE Serve(_, _)
Serve(srv, out) ==
    IF ~Serves(srv) THEN [srv |-> srv, out |-> out]
    ELSE LET p == Head(srv.queue)
             next == Given(srv, p.s, p.want, GrantTTL)
         IN  Serve(next, out \cup {Reply("push", p.s, srv.entries[p.s].e, 0, p.want, next.entries[p.s].token)})

\* Those that have units learn that the head waits, with each of its heartbeats.
Asked(srv, s) ==
    IF srv.queue = <<>> \/ Head(srv.queue).s # s THEN {}
    ELSE {Reply("wanted", t, 0, 0, 0, 0): t \in {t \in Sessions \ {s}: Units(srv, t) > 0}}

Queued(srv, s, want) ==
    LET i == At(srv, s)
        place == [s |-> s, want |-> want, left |-> Deadline]
    IN  IF i # 0 /\ Rule("place kept") THEN [srv EXCEPT !.queue[i] = place]
        ELSE [srv EXCEPT !.queue = Append(Without(@, s), place)]

\* The reply comes after all that the run gives: it replaces a push to its sender, who has a full lease.
Answer(srv, m, out) ==
    LET entry == srv.entries[m.s]
        kind == IF At(srv, m.s) # 0 THEN "queued" ELSE "ok"
    IN  [srv |-> [srv EXCEPT !.entries[m.s].left = IF entry.units > 0 THEN Lease ELSE @],
         out |-> {o \in out: o.s # m.s} \cup Asked(srv, m.s)
                              \cup {Replied(m, kind, entry.units, entry.token)}]

\* For how long copies of this request, and so of all before it, may be executed.
Memory(m) == NotAfter + 1 - Min(m.age, NotAfter)

\* A new epoch: what is kept, then what is wanted, then the others.
NewEpoch(m) ==
    LET s == m.s
        entry == server.entries[s]
        lost == (m.keep > entry.units /\ Rule("keep of units")) \/ (m.keep > 0 /\ m.token # entry.token /\ Rule("under"))
        keep == IF lost THEN 0 ELSE m.keep
        kept == [server EXCEPT !.entries[s] =
                    [e |-> m.e, units |-> IF Rule("the rest back") \/ lost THEN keep ELSE entry.units,
                     left |-> IF keep > 0 THEN Lease ELSE 0, memory |-> Memory(m), token |-> IF keep > 0 THEN entry.token ELSE 0]]
        wants == CASE lost \/ m.want <= keep -> IF Rule("no place wanted") \/ lost THEN [kept EXCEPT !.queue = Without(@, s)] ELSE kept
                   [] Fits(kept, s, m.want) /\ ~Rule("head only") -> Given(kept, s, m.want, Lease)
                   [] OTHER -> Queued(kept, s, m.want)
        r == IF Rule("handed on") THEN Serve(wants, {}) ELSE [srv |-> wants, out |-> {}]
    IN  Answer(r.srv, m, r.out)

\* A repetition gives a full lease to what the session has, and its place a new deadline.
Again(m) ==
    LET i == At(server, m.s)
        longer == [server EXCEPT !.entries[m.s].memory = IF Rule("memory of a copy") THEN Max({@, Memory(m)}) ELSE @,
                                 !.queue = IF i = 0 THEN @ ELSE [@ EXCEPT ![i].left = Deadline]]
        r == Serve(longer, {})
    IN  Answer(r.srv, m, r.out)

Share(m) ==
    CASE m.e < server.entries[m.s].e /\ Rule("lower epoch") ->
            [srv |-> server, out |-> {Replied(m, "stale", 0, 0)}]
      [] m.e = server.entries[m.s].e /\ Units(server, m.s) > 0 /\ m.keep > 0 /\ m.token # server.entries[m.s].token
         /\ Rule("under in a copy") ->
            [srv |-> server, out |-> {Replied(m, "ok", 0, 0)}]
      [] m.e = server.entries[m.s].e /\ Rule("same epoch") -> Again(m)
      [] OTHER -> NewEpoch(m)

\* The sessions to which a run gave all units, and those to which it gave some.
Got(srv, all) == {s \in Sessions: /\ Units(server, s) = 0 \/ (all /\ Units(server, s) < Limit)
                                  /\ Units(srv, s) > 0 /\ (Units(srv, s) = Limit) = all}

Execute(m, doubled) ==
    /\ m.kind = "share"
    /\ doubled => ~world.calm
    /\ \E r \in {Share(m)}: \* once: TLC evaluates what LET names again and again
           /\ server' = r.srv
           /\ net' = Sent((net \ {m}) \cup (IF doubled THEN {[m EXCEPT !.run = TRUE]} ELSE {}), r.out, session)
           /\ world' = [world EXCEPT
                !.top = Max({@, r.srv.last}),
                !.highest[m.s] = Max({@, r.srv.entries[m.s].e}),
                !.handed = @ /\ (r.srv = server \/ ~Serves(r.srv)),
                !.rose = @ /\ (Tokens /\ Got(r.srv, TRUE) # {} => r.srv.last > world.top),
                !.apart = @ /\ (Tokens /\ Got(r.srv, FALSE) # {} => r.srv.last >= world.top)]
    /\ UNCHANGED session

(* ----------------------------------------------------------------------------------------------------- sessions *)

\* has: the units in use or ready for use, trusted for a number of ticks, under a token. want: what the request under way
\* asks for. wanted: another session has asked for units.
Idle == [phase |-> "settled", epoch |-> 0, has |-> 0, keep |-> 0, want |-> 0, trust |-> 0, token |-> 0,
         wanted |-> FALSE, beaten |-> FALSE, same |-> TRUE]

Room == world.calm \/ Cardinality(net) < MaxMessages

Send(s, changed) ==
    /\ Room
    /\ session' = [session EXCEPT ![s] = [changed EXCEPT !.beaten = TRUE]]
    /\ net' = Sent(net, {Request(s, changed.epoch, changed.keep, changed.want, changed.token)}, session')
    /\ UNCHANGED <<server, world>>

\* A session says what it has from now on: what it gives back is out of use before. Who asks keeps an epoch to give back with.
Say(s, keep, want) ==
    LET me == session[s]
    IN  /\ me.phase # "dead" /\ me.epoch < MaxEpoch
        /\ keep <= me.has /\ keep <= want
        /\ want > keep => me.epoch + (IF keep > 0 THEN 2 ELSE 1) < MaxEpoch
        /\ Send(s, [me EXCEPT !.phase = IF want > keep THEN "asking" ELSE "telling", !.epoch = @ + 1,
                              !.has = IF Rule("give back first") THEN keep ELSE @, !.keep = keep, !.want = want,
                              !.trust = IF keep > 0 \/ ~Rule("give back first") THEN @ ELSE 0, !.wanted = FALSE,
                              !.token = IF keep > 0 THEN @ ELSE 0])

\* Another session wants units: users leave, and the session gives back. One that waits itself keeps its place.
Yield(s) ==
    LET me == session[s]
    IN  me.wanted /\ Rule("wanted") /\ IF me.phase = "asking" THEN Say(s, 0, me.want) ELSE Say(s, 0, 0)

\* Each heartbeat a session repeats what it said last. So units are renewed: what it has then is what it keeps.
Beat(s) ==
    LET me == session[s]
    IN  /\ ~me.beaten
        /\ me.phase = "telling" \/ (me.phase = "asking" /\ Rule("heartbeat")) \/ (me.phase = "settled" /\ me.has > 0)
        /\ Send(s, me)

Trust(m) == IF m.kind = "push" THEN Minus(GrantTTL, IF Rule("push by its time") THEN m.age ELSE 0)
            ELSE Minus(Lease, IF Rule("trust from sending") THEN m.age ELSE 0)

Lost(me) == [me EXCEPT !.phase = "lost", !.has = 0, !.trust = 0, !.token = 0, !.wanted = FALSE]

\* The units of a reply are used from now on. Fewer than the session keeps are a loss. Units come under one token for as
\* long as there are any.
Gets(me, m) ==
    IF Trust(m) = 0 THEN me
    ELSE [me EXCEPT !.phase = "settled", !.has = m.units, !.trust = Max({@, Trust(m)}), !.token = m.token,
                    !.keep = m.units, !.want = m.units, !.same = @ /\ (me.token = 0 \/ me.token = m.token)]
Keeps(me, m) ==
    IF me.keep = 0 \/ Trust(m) = 0 THEN me
    ELSE [me EXCEPT !.trust = Max({@, Trust(m)}), !.same = @ /\ me.token = m.token]

Heard(me, m) ==
    CASE m.kind = "wanted" -> [me EXCEPT !.wanted = me.has > 0]
      [] m.kind = "stale" /\ me.phase # "settled" -> Lost(me)
      [] m.kind = "push" /\ me.phase = "asking" -> Gets(me, m)
      [] m.kind \in {"ok", "queued"} /\ m.units < me.keep /\ m.kept = me.keep -> Lost(me)
      [] m.kind = "ok" /\ me.phase = "asking" /\ m.units >= me.want -> Gets(me, m)
      [] m.kind = "ok" /\ me.phase = "asking" -> Lost(me) \* its place has lapsed
      [] m.kind = "queued" /\ me.phase = "asking" -> Keeps(me, m)
      [] m.kind = "ok" /\ me.phase = "telling" -> [Keeps(me, m) EXCEPT !.phase = "settled", !.has = me.keep]
      [] m.kind = "ok" /\ me.phase = "settled" /\ (m.kept = me.keep \/ ~Rule("renewals confirm")) -> Keeps(me, m)
      [] OTHER -> me

Hear(m) ==
    /\ m.kind # "share"
    /\ session' = [session EXCEPT ![m.s] = Heard(@, m)]
    /\ net' = Sent(net \ {m}, {}, session')
    /\ UNCHANGED <<server, world>>

(* ------------------------------------------------------------------------------------------------ time and faults *)

\* An entry without units stays while it has a place, and for as long as a copy of an older request may be executed.
AgedEntry(entry, placed) ==
    LET left == Less(entry.left)
        memory == Less(entry.memory)
    IN  IF left = 0 /\ (memory = 0 \/ ~Rule("memory")) /\ ~(placed /\ Rule("places known")) THEN NoEntry
        ELSE [entry EXCEPT !.left = left, !.memory = memory, !.units = IF left = 0 THEN 0 ELSE @,
                           !.token = IF left = 0 THEN 0 ELSE @]
Aged(srv) ==
    LET queue == SelectSeq([i \in DOMAIN srv.queue |-> [srv.queue[i] EXCEPT !.left = Less(@)]], LAMBDA p: p.left > 0)
        placed == {queue[i].s: i \in DOMAIN queue}
    IN  [srv EXCEPT !.entries = [s \in Sessions |-> IF Rule("lease ends") THEN AgedEntry(@[s], s \in placed) ELSE @[s]],
                    !.queue = queue]

AgedSession(me) ==
    LET older == [me EXCEPT !.trust = Less(@), !.beaten = FALSE]
    IN  IF me.has > 0 /\ older.trust = 0 THEN [Lost(me) EXCEPT !.beaten = FALSE] ELSE older

Busy(s) == ~session[s].beaten /\ \/ session[s].phase = "telling" \/ (session[s].phase = "asking" /\ Rule("heartbeat"))
                                 \/ session[s].phase = "settled" /\ session[s].has > 0
Tick ==
    /\ world.calm => net = {} /\ \A s \in Sessions: ~Busy(s)
    /\ server' = Aged(server)
    /\ session' = [s \in Sessions |-> AgedSession(session[s])]
    /\ net' = Sent({}, {Older(m): m \in net}, session')
    /\ UNCHANGED world

Lose(m) == ~world.calm /\ net' = net \ {m} /\ UNCHANGED <<server, session, world>>

Flush ==
    /\ ~world.calm /\ world.flushes < MaxFlushes
    /\ server' = Empty /\ world' = [world EXCEPT !.flushes = @ + 1] /\ UNCHANGED <<net, session>>

Start == [calm |-> FALSE, flushes |-> 0, top |-> 0, rose |-> TRUE, apart |-> TRUE, handed |-> TRUE, highest |-> [s \in Sessions |-> 0]]
Init == server = Empty /\ net = {} /\ session = [s \in Sessions |-> Idle] /\ world = Start

Arrive == \E m \in net: Execute(m, FALSE) \/ Hear(m)

Next ==
    \/ \E s \in Sessions: \E want \in Wants: \E keep \in {0, session[s].has}: keep < want /\ Say(s, keep, want)
    \/ \E s \in Sessions: Say(s, 0, 0) \/ Beat(s)
    \/ Arrive
    \/ \E m \in net: Execute(m, TRUE) \/ Lose(m)
    \/ Tick \/ Flush

SafetySpec == Init /\ [][Next]_vars

(* Once the faults have ended: whatever they have left behind. A session has units, or waits, is dead, or has gone; Redis has
   its units, its place, or, of one that waits, nothing. *)
Left(p, units) == CASE p = "dead" -> [Idle EXCEPT !.phase = p, !.epoch = MaxEpoch]
                    [] p = "asking" -> [Idle EXCEPT !.phase = p, !.epoch = 1, !.want = units]
                    [] p = "settled" -> [Idle EXCEPT !.epoch = 1, !.has = units, !.keep = units, !.want = units, !.trust = 1]
                    [] OTHER -> Idle
Orders == {seq \in UNION {[1..n -> Sessions]: n \in 0..Cardinality(Sessions)}:
             \A i, j \in DOMAIN seq: seq[i] = seq[j] => i = j}

AfterFaults ==
    /\ net = {} /\ world = [Start EXCEPT !.calm = TRUE]
    /\ \E phases \in [Sessions -> {"dead", "asking", "settled", "gone"}]: \E units \in [Sessions -> Wants]:
       \E order \in Orders: \E having \in SUBSET Sessions:
          /\ Sum(units, having) <= Limit
          /\ \A s \in Sessions: /\ phases[s] = "settled" => s \in having
                               /\ phases[s] = "gone" => s \notin having
          /\ \A i \in DOMAIN order: order[i] \notin having /\ phases[order[i]] \in {"dead", "asking"}
          /\ session = [s \in Sessions |-> Left(phases[s], units[s])]
          /\ server = [Empty EXCEPT
                !.entries = [s \in Sessions |->
                    IF s \in having THEN [NoEntry EXCEPT !.e = 1, !.units = units[s], !.left = Lease]
                    ELSE IF \E i \in DOMAIN order: order[i] = s THEN [NoEntry EXCEPT !.e = 1, !.memory = 1] ELSE NoEntry],
                !.queue = [i \in DOMAIN order |-> [s |-> order[i], want |-> units[order[i]], left |-> Deadline]]]

\* Time passes, what was sent arrives, and sessions beat: in each tick there is an end of these. And units are given back.
Goes == Tick \/ Arrive \/ \E s \in Sessions: Beat(s)
Yields == \E s \in Sessions: Yield(s)
Begins(s) == session[s].phase = "settled" /\ session[s].has = 0 /\ \E want \in Wants: Say(s, 0, want)
Ends(s) == session[s].has > 0 /\ Say(s, 0, 0)
LiveNext == Goes \/ Yields \/ \E s \in Sessions: Begins(s) \/ Ends(s)
LiveSpec == AfterFaults /\ [][LiveNext]_vars /\ WF_vars(Goes) /\ WF_vars(Yields)

Symmetry == Permutations(Sessions)

\* A grant that lapses can be given again and again, each time with a higher token: a world with tokens ends with these.
Few == world.top <= 6

(* --------------------------------------------------------------------------------------------------- properties *)

Kept == world.flushes = 0
Trusted == [s \in Sessions |-> IF session[s].trust > 0 THEN session[s].has ELSE 0]

\* The units that sessions trust are no more than there are: so a writer is alone.
LimitKept == Kept => Sum(Trusted, Sessions) <= Limit

\* And Redis never gives more.
LimitGiven == Sum([s \in Sessions |-> Units(server, s)], Sessions) <= Limit

\* A session trusts only what Redis has, and no longer than Redis.
InTime ==
    Kept => \A s \in Sessions: Trusted[s] > 0 =>
        /\ server.entries[s].units >= Trusted[s] /\ server.entries[s].left >= session[s].trust
        /\ server.entries[s].token = session[s].token

\* What a session has given back it does not get by a copy of an older epoch.
GivenUp == Kept => \A s \in Sessions: Units(server, s) > 0 => server.entries[s].e = world.highest[s]
PlaceGivenUp == Kept => \A s \in Sessions: At(server, s) # 0 => server.entries[s].e = world.highest[s]

\* A copy of a request that has been executed is never taken for a new one.
CopiesKnown == Kept => \A m \in net: m.kind = "share" /\ m.run /\ m.age <= NotAfter => m.e <= server.entries[m.s].e

\* When Redis has executed what a session said last, the session has no more units than it wanted, and no place if it wanted none.
AsSaid == \A s \in Sessions: server.entries[s].e = session[s].epoch =>
             Units(server, s) <= session[s].want /\ (session[s].want = 0 => At(server, s) = 0)

\* What a request leaves free goes to the head that it suffices, in the same run.
HandsOn == world.handed

\* A writer's token is above all before it.
TokensRise == world.rose

\* Readers are below no writer before them: so, with TokensRise, equal versions mean that nothing was written in between.
VersionsTell == world.apart

\* What a session keeps is never confirmed by units of another life of the name.
SameUnits == \A s \in Sessions: session[s].same

\* No session that waits is overtaken.
Ahead(srv, s, t) == At(srv, s) # 0 /\ At(srv, s) < At(srv, t)
Newly(s) == At(server, s) = 0 /\ At(server', s) = 0 /\ Units(server', s) > Units(server, s)
InOrder ==
    [][/\ \A s, t \in Sessions: Ahead(server, s, t) /\ At(server', t) # 0 => ~Ahead(server', t, s)
       /\ \A s, t \in Sessions: s # t /\ Newly(s) => At(server, t) = 0 \/ At(server', t) = 0]_vars

\* Every wait ends.
Served == \A s \in Sessions: session[s].phase = "asking" ~> session[s].phase # "asking"
=============================================================================
