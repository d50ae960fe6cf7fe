---------------------------- MODULE RelockTrace -----------------------------
(* Whether Relock.tla explains a trace: what sessions sent, what the server executed and replied, what they heard, and for
   how long their owners had the lock, step by step and in milliseconds. The module Traces has them, as TestTraces of package
   faults records them. TLC explains as many steps as it can: if there are more, the code and the specification differ.

   What the server does is Relock.tla's Executed, to the letter. What a session does is checked here by what can be seen:
   when it may send what, that its owner has got the lock by a grant that it has heard, and has it no longer than is
   trusted. That it sends heartbeats, and that a wait ends, is not checked; nor are tries, re-entry, cohorts, locks that are
   kept, other leases, conditions, Resume and ForceUnlock, which traces do not have. *)
EXTENDS Relock, Traces

VARIABLES
    trace,   \* which one it is
    at,      \* the step that is next
    now,     \* the time of the one before
    inside,  \* which sessions have an owner that has the lock
    grants,  \* the grants and pushes that were heard, and whether they leave the lease as it was
    kept,    \* for which time the lease of a hold is trusted that an owner has left
    lapsed   \* the sessions whose place has ended, and may still be where it was
extra == <<trace, inside, grants, kept, lapsed>>

Step == Recorded[trace][at]
Me == session[Step.s]
Is(m) == m.kind = Step.kind /\ m.s = Step.s /\ m.e = Step.e /\ m.age = Step.age

(* cfg puts these in the place of Relock.tla's. *)

\* Tokens are given by a clock that is not in the trace: any token is right that is high enough.
TraceNewToken(srv, seen) == IF Step.token > Max({srv.token, seen}) THEN Step.token ELSE 0

\* The margin is a hundredth of a lease, and two milliseconds, which pay here for what is rounded.
Safe(ticks, m) == Minus(ticks, ticks \div 100 + m.age)
TraceTrust(m) == Safe(IF m.kind = "push" THEN GrantTTL ELSE Lease, m)

(* ---------------------------------------------------------------------------------------------------------- time *)

Gone(srv, n) == {srv.places[i].s: i \in {i \in DOMAIN srv.places: srv.places[i].left <= n}}
After(srv, n) ==
    [srv EXCEPT !.left = IF srv.ends THEN Minus(@, n) ELSE @,
                !.places = SelectSeq([i \in DOMAIN @ |-> [@[i] EXCEPT !.left = Minus(@, n)]], LAMBDA p: p.left > 0),
                !.tombs = [s \in Sessions |-> IF @[s].left <= n THEN [e |-> 0, left |-> 0] ELSE [@[s] EXCEPT !.left = @ - n]]]
AfterOpen(open, n) == {<<c[1], c[2] + n>>: c \in {c \in open: c[2] + n <= NotAfter}}
AfterSession(me, n) ==
    [me EXCEPT !.trust = Minus(@, n), !.open = AfterOpen(@, n), !.phase = IF @ = "holding" /\ me.trust <= n THEN "lost" ELSE @]
AfterMessage(m, n) ==
    [m EXCEPT !.age = @ + n, !.x = IF m.kind \in {"release", "resume"} THEN Minus(@, n) ELSE @]

\* Time passes, for no longer than those that have the lock trust its lease.
Pass ==
    /\ now < Step.at
    /\ \E n \in {Step.at - now}:
        /\ \A s \in Sessions: inside[s] => session[s].trust >= n
        /\ server' = After(server, n) /\ replica' = After(replica, n)
        /\ lapsed' = lapsed \cup Gone(server, n)
        /\ session' = [s \in Sessions |-> AfterSession(session[s], n)]
        /\ net' = Sent({}, {AfterMessage(m, n): m \in net}, session')
        /\ grants' = {[g EXCEPT !.m = AfterMessage(@, n)]: g \in grants}
        /\ kept' = [s \in Sessions |-> Minus(kept[s], n)]
    /\ now' = Step.at /\ UNCHANGED <<world, trace, at, inside>>

(* ------------------------------------------------------------------------------------------------------- sessions *)

\* An attempt has a new epoch, or is another copy of one that has not got the lock. No owner has it then.
Attempted ==
    /\ Step.kind \in Attempts /\ ~inside[Step.s]
    /\ Step.e > Me.epoch \/ (Step.e = Me.epoch /\ Me.phase = "asking")
    /\ Step.until <= NotAfter /\ Step.token >= Me.token
    /\ session' = [session EXCEPT ![Step.s] =
            [@ EXCEPT !.phase = "asking", !.epoch = Step.e, !.trust = 0, !.open = Opened(@, Step.e)]]
    /\ net' = Sent(net, {Message(Step.kind, Step.s, Step.e, 0, Step.token)}, session')
    /\ grants' = {g \in grants: g.m.s # Step.s \/ g.m.e = Step.e}

\* A release may repeat an older one. It leaves a tombstone for as long as a copy of an attempt may be executed.
Released ==
    /\ Step.kind = "release" /\ Step.e <= Me.epoch
    /\ Step.e = Me.epoch => ~inside[Step.s] /\ Step.until + 2 >= Open(Step.s)
    /\ session' = IF Step.e < Me.epoch THEN session ELSE [session EXCEPT ![Step.s] = [@ EXCEPT !.phase = "releasing", !.trust = 0]]
    /\ net' = Sent(net, {Message(Step.kind, Step.s, Step.e, 0, Step.until)}, session')
    /\ UNCHANGED grants

\* A renewal does no harm whenever it comes.
Renewed ==
    /\ Step.kind = "renew" /\ Step.e <= Me.epoch
    /\ net' = Sent(net, {Message(Step.kind, Step.s, Step.e, 0, 0)}, session)
    /\ UNCHANGED <<session, grants>>

TraceSend == (Attempted \/ Released \/ Renewed) /\ UNCHANGED <<server, replica, world, inside, kept, lapsed, trace>>

\* A release that was heard has left a tombstone for all copies under way.
Replied(m) == [Heard(Me, m) EXCEPT !.open = IF m.kind = "freed" THEN {} ELSE @ \ {<<m.e, m.age>>}]

\* An owner gets the lock by a grant that was heard; until it says so the session waits.
TraceHear ==
    /\ IF \E m \in net: Is(m) /\ m.x = Step.token
       THEN \E m \in net:
                /\ Is(m) /\ m.x = Step.token
                /\ net' = IF Step.again THEN net ELSE net \ {m}
                /\ IF m.kind \in {"granted", "push"}
                   THEN /\ grants' = grants \cup {[m |-> m, keep |-> Step.keep]}
                        /\ session' = [session EXCEPT ![m.s].open = @ \ {<<m.e, m.age>>}]
                   ELSE /\ UNCHANGED grants
                        /\ session' = [session EXCEPT ![m.s] = Replied(m)]
       ELSE Step.e # Me.epoch /\ UNCHANGED <<net, session, grants>> \* no session acts on it
    /\ UNCHANGED <<server, replica, world, inside, kept, lapsed, trace>>

\* An attempt that left the lease as it was has what was left of it.
Got ==
    /\ ~inside[Step.s]
    /\ \E g \in grants:
        /\ g.m.s = Step.s /\ g.m.e = Me.epoch /\ g.m.x = Step.token
        /\ \E next \in {Heard(Me, g.m)}:
            /\ next.phase = "holding"
            /\ session' = [session EXCEPT ![Step.s] = IF g.keep THEN [next EXCEPT !.trust = kept[Step.s]] ELSE next]
    /\ inside' = [inside EXCEPT ![Step.s] = TRUE]
    /\ grants' = {g \in grants: g.m.s # Step.s}
    /\ UNCHANGED <<server, replica, net, world, kept, lapsed, trace>>

\* The owner unlocks, or knows that the lock is lost.
Leaving(s) ==
    /\ inside[s] /\ inside' = [inside EXCEPT ![s] = FALSE]
    /\ kept' = [kept EXCEPT ![s] = session[s].trust]
    /\ session' = [session EXCEPT ![s] = [@ EXCEPT !.phase = "lost", !.trust = 0]]
    /\ UNCHANGED <<server, replica, net, world, grants, lapsed, trace>>

(* ---------------------------------------------------------------------------------------------------- the server *)

\* A takeover may leave the lease as it is.
Leased(r, m) ==
    IF Step.keep /\ Has(server, m.s) /\ m.e > server.epoch /\ r.srv.owner = m.s THEN [r.srv EXCEPT !.left = server.left] ELSE r.srv

\* A place that has ended, and that no command has removed, is where it was when its session comes back.
Moved(places, i, j) == LET rest == Without(places, places[i].s) IN SubSeq(rest, 1, j - 1) \o <<places[i]>> \o SubSeq(rest, j, Len(rest))
Placed(srv, s) ==
    IF s \in lapsed /\ At(srv, s) # 0 THEN {[srv EXCEPT !.places = Moved(@, At(srv, s), j)]: j \in DOMAIN srv.places} ELSE {srv}

\* A renewal, a try in vain and a late copy leave such a place where it was.
Lapsed(m) ==
    IF At(server', m.s) # 0 \/ Has(server', m.s) \/ (m.kind = "release" /\ m.e = session[m.s].epoch) THEN lapsed \ {m.s} ELSE lapsed

Pushes(out) == {o \in out: o.kind = "push"}
AsSeen(out) ==
    /\ \E o \in out: o.kind = Step.reply /\ o.s = Step.s /\ (Step.to = "" => o.x = Step.token)
    /\ Pushes(out) = IF Step.to = "" THEN {} ELSE {Message("push", Step.to, Step.te, 0, Step.token)}

\* An attempt that leaves the lease as it was may come after its notAfter, if the script compares the record.
Remembered ==
    IF Step.keep /\ Step.age > NotAfter /\ Step.prior # 0 /\ Has(server, Step.s) /\ server.epoch = Step.prior /\ Step.prior < Step.e
    THEN {Message(Step.kind, Step.s, Step.e, Step.age, 0)} ELSE {}

Ran ==
    \E m \in net \cup Remembered: /\ Is(m)
        /\ \E r \in {Executed(m)}:
            /\ AsSeen(r.out)
            /\ server' \in Placed(Leased(r, m), m.s)
            /\ net' = Sent(IF Step.again THEN net ELSE net \ {m}, r.out, session)
            /\ world' = [world EXCEPT
                    !.rose = @ /\ (r.token = 0 \/ r.token > world.top),
                    !.top = Max({@, r.token}),
                    !.renewed = @ /\ \A o \in r.out: o.kind = "renewed" => Has(server, o.s) /\ server.epoch = o.e]
        /\ lapsed' = Lapsed(m)

\* What comes too late does nothing.
Late == Step.reply = "late" /\ Step.age > NotAfter /\ UNCHANGED <<server, net, world, lapsed>>

TraceExecute == (IF Step.reply = "late" THEN Late ELSE Ran) /\ UNCHANGED <<replica, session, inside, grants, kept, trace>>

Drop == net' = {m \in net: ~Is(m)} /\ UNCHANGED <<server, replica, session, world, extra>>

Flush ==
    /\ server' = Empty /\ lapsed' = {} /\ world' = [world EXCEPT !.forgot = TRUE]
    /\ UNCHANGED <<replica, net, session, inside, grants, kept, trace>>

(* --------------------------------------------------------------------------------------------------- the trace *)

Taken ==
    CASE Step.what = "send" -> TraceSend
      [] Step.what = "execute" -> TraceExecute
      [] Step.what = "hear" -> TraceHear
      [] Step.what = "drop" -> Drop
      [] Step.what = "got" -> Got
      [] Step.what \in {"left", "lost"} -> Leaving(Step.s)
      [] Step.what = "flush" -> Flush

\* TLC prints how far it has come with each trace.
Note == at > TLCGet(trace) => TLCSet(trace, at) /\ PrintT(<<trace, at>>)

TraceInit ==
    /\ trace \in DOMAIN Recorded /\ TLCSet(trace, 0)
    /\ Init /\ at = 1 /\ now = 0
    /\ inside = [s \in Sessions |-> FALSE] /\ kept = [s \in Sessions |-> 0] /\ grants = {} /\ lapsed = {}
TraceNext ==
    /\ at <= Len(Recorded[trace])
    /\ Pass \/ (now = Step.at /\ Taken /\ at' = at + 1 /\ UNCHANGED now /\ Note)
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at, now, extra>>

\* At most one owner has the lock, as long as Redis keeps its data.
Alone == Kept => \A s, t \in Sessions: inside[s] /\ inside[t] => s = t
=============================================================================
