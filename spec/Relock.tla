------------------------------- MODULE Relock -------------------------------
(* The protocol of one lock, as docs/protocol.md describes it: sessions, a network that loses, doubles, delays and
   reorders, and a Redis that can fail over to an older copy of its data. README.md says what is left out. Each rule has
   a name, by which a model can switch it off; rules.list has what then goes wrong.

   Time is a number of ticks, and each moment is kept as the ticks until it or since it, so that states repeat. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Sessions,
    Off,          \* the names of the rules that are switched off
    Lease,        \* the ticks of a lease,
    GrantTTL,     \* of a pushed grant,
    Deadline,     \* of a place without a heartbeat,
    NotAfter,     \* from the sending of an attempt to its notAfter,
    Margin,       \* and by how many trust ends earlier than the lease
    MaxEpoch,     \* how many epochs a session has
    MaxMessages,  \* how many messages are under way at once
    MaxFailovers,
    MaxSlips,     \* how often Redis's clock gains a tick on those of the sessions
    MaxBehind,    \* by how much the clock of a server that takes over may be behind
    Doubles,      \* whether an attempt may arrive twice although it was sent once
    Tokens,       \* whether there are tokens: without, there are fewer states
    Yields        \* whether a holder may give the lock to another session and queue again, in one command

VARIABLES
    server,   \* what Redis keeps of the lock
    replica,  \* an older copy of it
    net,      \* the messages under way
    session,  \* what each session knows
    world     \* which faults there have been, and what the properties need to remember
vars == <<server, replica, net, session, world>>

Rule(name) == name \notin Off
Max(S) == CHOOSE x \in S: \A y \in S: y <= x
Less(x) == IF x = 0 THEN 0 ELSE x - 1
Minus(x, y) == IF x > y THEN x - y ELSE 0
Nobody == "nobody"

(* ------------------------------------------------------------------------------------------------ the messages *)

\* age counts from the sending of the request, in a push from the grant. x is the token of a grant or of a hold that is
\* renewed, the highest token that the sender of an attempt has seen, and the ticks until the tombstone of a release ends.
Message(kind, s, e, age, x) == [kind |-> kind, s |-> s, e |-> e, age |-> age, x |-> x]
\* Tries take no place. A try takes a free lock for which others wait, and a poll does not; a cede is a poll that yields.
Tries == {"try", "poll", "cede"}
Attempts == {"attempt", "yield"} \cup Tries
Requests == Attempts \cup {"renew", "release"}

\* No session would act on it: it need not arrive. A reply counts for the epoch under way only.
Ignored(m, ss) == \/ ss[m.s].phase = "dead" /\ m.kind \notin Requests
                  \/ Rule("own epoch") /\ m.kind \notin Requests /\ m.e # ss[m.s].epoch
                  \/ Rule("not after") /\ m.kind \in Attempts /\ m.age > NotAfter
Sent(old, new, ss) == {m \in old \cup new: ~Ignored(m, ss)}

Older(m) == [m EXCEPT !.age = IF @ < Lease THEN @ + 1 ELSE Lease, !.x = IF m.kind = "release" THEN Less(@) ELSE @]

(* -------------------------------------------------------------------------------------------------------- Redis *)

Empty == [owner |-> Nobody, epoch |-> 0, left |-> 0, token |-> 0, ends |-> TRUE, places |-> <<>>,
          tombs |-> [s \in Sessions |-> [e |-> 0, left |-> 0]]]

Live(srv) == srv.left > 0
Has(srv, s) == srv.owner = s /\ Live(srv)
At(srv, s) == IF \E i \in DOMAIN srv.places: srv.places[i].s = s
              THEN CHOOSE i \in DOMAIN srv.places: srv.places[i].s = s ELSE 0
Without(seq, s) == SelectSeq(seq, LAMBDA p: p.s # s)

\* Redis's clock in microseconds rises faster than tokens are given: it is above all that were given before.
NewToken(srv, seen) ==
    IF ~Tokens THEN 0
    ELSE Max({IF Rule("token above the last") THEN srv.token + 1 ELSE 0,
              IF Rule("token above the seen") THEN seen + 1 ELSE 0,
              IF Rule("token by the clock") THEN Minus(world.top + 1, world.behind) ELSE 0, 1})

\* The results of a command: what Redis then has, what it sends, and the token that it gave, 0 for none.
Result(srv, out, token) == [srv |-> srv, out |-> out, token |-> token]

Grant(srv, s, e, ticks, seen) ==
    [srv EXCEPT !.owner = s, !.epoch = e, !.left = ticks, !.token = NewToken(srv, seen), !.ends = TRUE,
                !.places = Without(@, s)]

\* A place keeps where it stands when its epoch rises.
Queued(srv, m) ==
    LET i == At(srv, m.s)
        place == [s |-> m.s, e |-> m.e, left |-> Deadline, seen |-> m.x]
    IN  IF i # 0 /\ Rule("place kept") THEN [srv EXCEPT !.places[i] = place]
        ELSE [srv EXCEPT !.places = Append(Without(@, m.s), place)]

\* The lock is free, and goes to the first that waits.
ToFirst(srv) ==
    IF srv.places = <<>> THEN Result([srv EXCEPT !.left = 0], {}, 0)
    ELSE LET p == Head(srv.places)
             to == [Grant(srv, p.s, p.e, GrantTTL, p.seen) EXCEPT !.ends = Rule("grant ends")]
         IN  Result(to, {Message("push", p.s, p.e, 0, to.token)}, to.token)

Attempt(m) ==
    LET s == m.s  e == m.e  i == At(server, s)
        reply(kind, x) == Message(kind, s, e, m.age, x)
        wait(r) == Result(IF m.kind \in Tries THEN r.srv ELSE Queued(r.srv, m), r.out \cup {reply("waiting", 0)}, r.token)
        own(srv) == Result(srv, {reply("granted", srv.token)}, srv.token)
        lower == \/ Has(server, s) /\ e < server.epoch
                 \/ i # 0 /\ e < server.places[i].e
        ended == server.owner = s /\ ~Live(server) /\ e <= server.epoch
    IN  CASE \/ lower /\ Rule("lower epoch")
             \/ ended /\ Rule("stale epoch")
             \/ e <= server.tombs[s].e -> Result(server, {reply("stale", 0)}, 0)
          [] Has(server, s) /\ e = server.epoch /\ Rule("same epoch") ->
                Result([server EXCEPT !.left = Lease, !.ends = TRUE], {reply("granted", server.token)}, 0)
          [] Has(server, s) /\ m.kind \in {"yield", "cede"} /\ server.places # <<>> -> wait(ToFirst(server))
          [] Has(server, s) ->
                LET next == Grant(server, s, e, Lease, m.x)
                IN  own(IF Rule("new token") THEN next ELSE [next EXCEPT !.token = server.token])
          [] ~Live(server) /\ (server.places = <<>> \/ i = 1 \/ m.kind = "try" \/ ~Rule("queue")) -> own(Grant(server, s, e, Lease, m.x))
          [] ~Live(server) -> wait(ToFirst(server))
          [] OTHER -> wait(Result(server, {}, 0))

\* A release removes what has its epoch or a lower one, and nothing newer. A lock that is free already goes to the first.
Release(m) ==
    LET s == m.s  i == At(server, s)
        names(e) == e <= m.e \/ ~Rule("release of an epoch")
        was == server.tombs[s]
        tomb == [e |-> IF Rule("highest tombstone") THEN Max({m.e, was.e}) ELSE m.e,
                 left |-> IF Rule("longest tombstone") THEN Max({m.x, was.left}) ELSE m.x]
        buried == IF m.x > 0 /\ Rule("tombstone") THEN [server EXCEPT !.tombs[s] = tomb] ELSE server
        left == IF i # 0 /\ names(server.places[i].e) THEN [buried EXCEPT !.places = Without(@, s)] ELSE buried
        free == \/ Has(server, s) /\ names(server.epoch)
                \/ ~Live(server) /\ Rule("release of a free lock")
        r == IF free THEN ToFirst(left) ELSE Result(left, {}, 0)
    IN  [r EXCEPT !.out = @ \cup {Message("freed", s, m.e, m.age, 0)}]

Renew(m) ==
    IF Live(server) /\ (~Rule("renewal of an epoch") \/ (server.owner = m.s /\ server.epoch = m.e))
    THEN Result([server EXCEPT !.left = Lease, !.ends = TRUE], {Message("renewed", m.s, m.e, m.age, server.token)}, 0)
    ELSE Result(server, {Message("gone", m.s, m.e, m.age, 0)}, 0)

\* Whether a place lasts, as it must, when a command has led to srv.
Lasts(p, srv, m) ==
    LET i == At(srv, p.s)
    IN  IF i # 0 THEN srv.places[i].e >= p.e
        ELSE (Has(srv, p.s) /\ srv.epoch >= p.e) \/ (m.kind = "release" /\ m.s = p.s /\ m.e >= p.e)

Executed(m) == CASE m.kind \in Attempts -> Attempt(m)
                 [] m.kind = "release" -> Release(m)
                 [] m.kind = "renew" -> Renew(m)

\* doubled: a copy stays under way.
Execute(m, doubled) ==
    /\ m.kind \in Requests
    /\ doubled => ~world.calm /\ (m.kind \in Attempts => Doubles)
    /\ \E r \in {Executed(m)}: \* once: TLC evaluates what LET names again and again
           /\ server' = r.srv
           /\ net' = Sent(IF doubled THEN net ELSE net \ {m}, r.out, session)
           /\ world' = [world EXCEPT
                !.rose = @ /\ (~Tokens \/ r.token = 0 \/ r.token > world.top),
                !.top = Max({@, r.token}),
                !.renewed = @ /\ \A o \in r.out: o.kind = "renewed" => Has(server, o.s) /\ server.epoch = o.e,
                !.handed = @ /\ (m.kind = "release" => Live(r.srv) \/ r.srv.places = <<>>),
                !.stood = @ /\ \A i \in DOMAIN server.places: Lasts(server.places[i], r.srv, m),
                !.given = IF m.kind = "release" /\ ~Doubles THEN [@ EXCEPT ![m.s] = Max({@, m.e})] ELSE @]
           /\ UNCHANGED <<replica, session>>

(* ----------------------------------------------------------------------------------------------------- sessions *)

\* epoch is the one under way, trust the ticks for which its hold is trusted, and older those of an owner before it. open
\* has the copies of attempts that have no reply and may still be executed.
Idle == [phase |-> "idle", epoch |-> 0, yields |-> FALSE, trust |-> 0, older |-> 0, token |-> 0, own |-> TRUE,
         beaten |-> FALSE, open |-> {}]

Room == world.calm \/ Cardinality(net) < MaxMessages
\* Where attempts double no session knows of all copies: there are no tombstones then, which only refuse what has come late.
Opened(open, e) == IF Doubles THEN open ELSE open \cup {<<e, 0>>}
Seen(s) == IF Tokens THEN session[s].token ELSE 0
Open(s) == IF session[s].open = {} THEN 0 ELSE Max({NotAfter + 1 - c[2]: c \in session[s].open})

Send(s, kind, x, changed) ==
    /\ Room
    /\ session' = [session EXCEPT ![s] = changed]
    /\ net' = Sent(net, {Message(kind, s, changed.epoch, 0, x)}, session')
    /\ UNCHANGED <<server, replica, world>>

Kind(yields) == IF yields THEN "yield" ELSE "attempt"

\* A new epoch: for the first owner, for the next owner of this process, or after an attempt that came to nothing. No owner
\* trusts an older one then.
Ask(s, yields) ==
    LET me == session[s]
    IN  /\ me.phase \in {"idle", "releasing", "holding", "lost", "outdated"}
        /\ me.epoch < MaxEpoch
        /\ yields => Yields /\ me.phase = "holding"
        /\ Send(s, Kind(yields), Seen(s),
                [me EXCEPT !.phase = "asking", !.epoch = @ + 1, !.yields = yields, !.trust = 0, !.beaten = TRUE,
                           !.older = IF Rule("trust ends first") THEN 0 ELSE me.trust,
                           !.open = Opened(@, me.epoch + 1)])

\* Each heartbeat a session says again what it wants.
Beat(s) ==
    LET me == session[s]
        beaten == [me EXCEPT !.beaten = TRUE]
    IN  /\ ~me.beaten
        /\ \/ /\ me.phase = "asking" /\ Rule("heartbeat")
              /\ Send(s, Kind(me.yields), Seen(s), [beaten EXCEPT !.open = Opened(@, me.epoch)])
           \/ me.phase = "holding" /\ Send(s, "renew", 0, beaten)
           \/ me.phase = "releasing" /\ Send(s, "release", Open(s), beaten)

\* An owner unlocks, or a waiter gives up.
Leave(s) ==
    /\ session[s].phase \in {"asking", "holding", "lost"}
    /\ Send(s, "release", Open(s), [session[s] EXCEPT !.phase = "releasing", !.trust = 0, !.beaten = TRUE])

Unlock(s) == session[s].phase \in {"holding", "lost"} /\ Leave(s)
GiveUp(s) == session[s].phase = "asking" /\ Leave(s)

\* The trust that a reply or a push justifies.
Shorter == IF Rule("margin") THEN Margin ELSE 0
Trust(m) == CASE m.kind = "push" -> Minus(GrantTTL, Shorter + (IF Rule("push by its time") THEN m.age ELSE 0))
              [] OTHER -> Minus(Lease, Shorter + (IF Rule("trust from sending") THEN m.age ELSE 0))

Heard(me, m) ==
    CASE m.kind \in {"granted", "push"} /\ me.phase = "asking" /\ Trust(m) > 0 ->
            [me EXCEPT !.phase = "holding", !.trust = Trust(m), !.token = Max({@, m.x}),
                       !.own = @ /\ (~Tokens \/ m.x > me.token)]
      [] m.kind = "renewed" /\ me.phase = "holding" /\ (m.x = me.token \/ ~Rule("own hold")) -> [me EXCEPT !.trust = Max({@, Trust(m)})]
      [] m.kind \in {"renewed", "gone"} /\ me.phase = "holding" -> [me EXCEPT !.phase = "lost", !.trust = 0]
      [] m.kind = "stale" /\ me.phase = "asking" -> [me EXCEPT !.phase = "outdated"]
      [] m.kind = "freed" /\ me.phase = "releasing" -> [me EXCEPT !.phase = "idle"]
      [] OTHER -> me

Hear(m) ==
    /\ m.kind \notin Requests
    /\ session' = [session EXCEPT ![m.s] = [Heard(@, m) EXCEPT !.open = @ \ {<<m.e, m.age>>}]]
    /\ net' = Sent(net \ {m}, {}, session')
    /\ UNCHANGED <<server, replica, world>>

(* ------------------------------------------------------------------------------------------------ time and faults *)

Aged(srv) ==
    [srv EXCEPT !.left = IF srv.ends /\ Rule("lease ends") THEN Less(@) ELSE @,
                !.places = SelectSeq([i \in DOMAIN @ |-> [@[i] EXCEPT !.left = Less(@)]], LAMBDA p: p.left > 0),
                !.tombs = [s \in Sessions |-> IF @[s].left <= 1 THEN [e |-> 0, left |-> 0] ELSE [@[s] EXCEPT !.left = @ - 1]]]

AgedOpen(open) == {<<c[1], c[2] + 1>>: c \in {c \in open: c[2] < NotAfter}}

AgedSession(me) ==
    [me EXCEPT !.trust = Less(@), !.older = Less(@), !.beaten = FALSE, !.open = AgedOpen(@),
               !.phase = IF @ = "holding" /\ me.trust <= 1 THEN "lost" ELSE @]

\* When the faults have ended, a tick is longer than messages take, and no session misses a heartbeat.
Busy(s) == session[s].phase \in {"asking", "holding", "releasing"} /\ ~session[s].beaten
Tick ==
    /\ world.calm => net = {} /\ \A s \in Sessions: Busy(s) => session[s].phase = "asking" /\ ~Rule("heartbeat")
    /\ server' = Aged(server) /\ replica' = Aged(replica)
    /\ session' = [s \in Sessions |-> AgedSession(session[s])]
    /\ net' = Sent({}, {Older(m): m \in net}, session')
    /\ UNCHANGED world

\* Redis's clock gains a tick.
Slip ==
    /\ ~world.calm /\ world.slips < MaxSlips
    /\ server' = Aged(server) /\ replica' = Aged(replica)
    /\ session' = [s \in Sessions |-> [session[s] EXCEPT !.open = AgedOpen(@)]]
    /\ net' = Sent({}, {IF m.kind \in Requests THEN Older(m) ELSE m: m \in net}, session')
    /\ world' = [world EXCEPT !.slips = @ + 1]

Lose(m) == ~world.calm /\ net' = net \ {m} /\ UNCHANGED <<server, replica, session, world>>

Replicate ==
    /\ ~world.calm /\ world.failovers < MaxFailovers /\ replica # server
    /\ replica' = server /\ UNCHANGED <<server, net, session, world>>

Failover(behind) ==
    /\ ~world.calm /\ world.failovers < MaxFailovers
    /\ server' = replica /\ replica' = Empty
    /\ world' = [world EXCEPT !.failovers = @ + 1, !.forgot = @ \/ replica # server, !.behind = behind]
    /\ UNCHANGED <<net, session>>

Start == [calm |-> FALSE, failovers |-> 0, slips |-> 0, behind |-> 0, forgot |-> FALSE,
          top |-> 0, rose |-> TRUE, renewed |-> TRUE, handed |-> TRUE, stood |-> TRUE,
          given |-> [s \in Sessions |-> 0]]

Init ==
    /\ server = Empty /\ replica = Empty /\ net = {}
    /\ session = [s \in Sessions |-> Idle] /\ world = Start

Arrive == \E m \in net: Execute(m, FALSE) \/ Hear(m)

Next ==
    \/ \E s \in Sessions: \E yields \in BOOLEAN: Ask(s, yields)
    \/ \E s \in Sessions: Beat(s) \/ Leave(s)
    \/ Arrive
    \/ \E m \in net: Execute(m, TRUE) \/ Lose(m)
    \/ Tick \/ Slip \/ Replicate
    \/ \E behind \in 0..MaxBehind: Failover(behind)

SafetySpec == Init /\ [][Next]_vars

(* Once the faults have ended: whatever they have left behind, which is more than they can. Any session may have the lock
   or a push that was lost, be dead, wait with a place or without, or hold, or not have heard that it has released. *)
Left(p) == CASE p = "dead" -> [Idle EXCEPT !.phase = p, !.epoch = MaxEpoch]
             [] p = "idle" -> Idle
             [] p = "holding" -> [Idle EXCEPT !.phase = p, !.epoch = 1, !.trust = 1]
             [] OTHER -> [Idle EXCEPT !.phase = p, !.epoch = 1]
Orders == {seq \in UNION {[1..n -> Sessions]: n \in 0..Cardinality(Sessions)}:
             \A i, j \in DOMAIN seq: seq[i] = seq[j] => i = j}

AfterFaults ==
    /\ net = {} /\ replica = Empty
    /\ \E phases \in [Sessions -> {"dead", "idle", "asking", "holding", "releasing"}]:
          session = [s \in Sessions |-> Left(phases[s])]
    /\ \E s \in Sessions: \E order \in Orders: \E ticks \in 0..Lease: \E pushed \in BOOLEAN:
          /\ ticks > 0 => session[s].phase # "idle" /\ \A i \in DOMAIN order: order[i] # s
          /\ \A i \in DOMAIN order: session[order[i]].phase \in {"dead", "asking", "releasing"}
          /\ \A t \in Sessions: session[t].phase = "holding" => t = s /\ ticks > 0
          /\ server = [Empty EXCEPT !.owner = s, !.epoch = 1, !.left = ticks, !.ends = ~pushed \/ Rule("grant ends"),
                !.places = [i \in DOMAIN order |-> [s |-> order[i], e |-> 1, left |-> Deadline, seen |-> 0]]]
    /\ world = [Start EXCEPT !.calm = TRUE]

\* Time passes, what was sent arrives, sessions beat, a stale attempt is made anew: in each tick there is an end of these. And
\* owners unlock.
Goes == Tick \/ Arrive \/ \E s \in Sessions: Beat(s) \/ (session[s].phase = "outdated" /\ Ask(s, FALSE))
Leaves == \E s \in Sessions: Unlock(s)
LiveNext == Goes \/ Leaves \/ \E s \in Sessions: session[s].phase = "idle" /\ Ask(s, FALSE)
LiveSpec == AfterFaults /\ [][LiveNext]_vars /\ WF_vars(Goes) /\ WF_vars(Leaves)

Symmetry == Permutations(Sessions)

\* A grant that lapses can be given again and again, each time with a higher token: a world with tokens ends with these.
Few == world.top <= 5

(* --------------------------------------------------------------------------------------------------- properties *)

Kept == ~world.forgot
Trusting(s) == session[s].trust > 0

\* At most one owner has the lock and trusts its lease.
OneOwner ==
    Kept => /\ \A s, t \in Sessions: Trusting(s) /\ Trusting(t) => s = t
            /\ \A s \in Sessions: session[s].older > 0 => \A t \in Sessions: ~Trusting(t)

\* A session trusts only what Redis has, and no longer than Redis.
InTime ==
    Kept => \A s \in Sessions: Trusting(s) =>
        /\ server.owner = s /\ server.epoch = session[s].epoch
        /\ server.left >= session[s].trust
        /\ Tokens => server.token = session[s].token

\* Each token is higher than all that were given before, whatever Redis forgot, unless its clock went back as well.
TokensRise == world.rose \/ (world.forgot /\ world.behind > 0)

\* The tokens that one session gets rise in any case.
OwnTokensRise == \A s \in Sessions: session[s].own

\* What a session has given up it does not get: neither the lock nor a place. A session does not know of a copy that the
\* network made of an attempt that has its reply: such a copy can take the lock, and nobody trusts it.
GivenUp == Kept /\ ~Doubles /\ Live(server) => server.epoch > world.given[server.owner]
PlaceGivenUp ==
    Kept /\ ~Doubles => \A i \in DOMAIN server.places: server.places[i].e > world.given[server.places[i].s]

\* A command takes away no place but with a grant or a release of its epoch or a later one, and gives none a lower epoch.
PlaceLasts == world.stood

\* A session does not get the lock twice in a row by one epoch.
NotAgain == [][Kept /\ ~Live(server) /\ Live(server') /\ server'.owner = server.owner => server'.epoch > server.epoch]_vars

\* A renewal prolongs the hold of its epoch, and no other.
RenewsItsOwn == world.renewed

\* A release leaves no free lock to those that wait.
HandsOn == world.handed

\* A hold is not confirmed by another one that Redis, which forgot it, granted by the same epoch.
ConfirmsItsOwn ==
    [][\A s \in Sessions: session'[s].trust > session[s].trust /\ session[s].phase = "holding" =>
        \E m \in net: m.kind = "renewed" /\ m.s = s /\ m.x = session[s].token]_vars

\* A free lock goes to the first that waits, and no session overtakes another in the queue.
Ahead(srv, s, t) == At(srv, s) # 0 /\ At(srv, s) < At(srv, t)
\* A release takes its session's place away before it gives a free lock to the first.
Withdrawn(p) ==
    p.s # server'.owner /\ At(server', p.s) = 0 /\ \E m \in net: m.kind = "release" /\ m.s = p.s /\ m.e >= p.e
Waiting == SelectSeq(server.places, LAMBDA p: ~Withdrawn(p))
InOrder ==
    [][world'.failovers = world.failovers =>
        /\ Live(server') /\ ~Has(server, server'.owner) /\ Waiting # <<>> => server'.owner = Head(Waiting).s
        /\ \A s, t \in Sessions: Ahead(server, s, t) /\ At(server', t) # 0 => ~Ahead(server', t, s)]_vars

\* Every wait ends.
Served == \A s \in Sessions: session[s].phase = "asking" ~> session[s].phase # "asking"
=============================================================================
