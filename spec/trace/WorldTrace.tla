----------------------------- MODULE WorldTrace -----------------------------
(* Whether Relock.tla explains a trace of a lock of the simulation, whose processes have clients of their own over connections
   that break. RelockTrace.tla says what is checked of sessions. Of the server this looks at what it has after each command: the
   holder, its epoch, its lease to the millisecond, how often it is held, the block of tokens, and the queue.

   A re-entry is a renewal that may leave the lease as it was, and a try an attempt that takes no place. An owner may begin to use
   a lock long after its session got it, as the owner of several locks does: meanwhile its grant is renewed. A session's token in
   Relock.tla is the first of its block. Its owners, and a session that lingers, leave its hold to the next without a command. An
   attempt that takes its session's own lock over and leaves the lease as it was may come after its notAfter, if the script compares
   the record. How often a lock is held that was granted by a push, and how many tokens a block has, is not looked at.

   An owner's hold that another session resumes has left the first before, as its trace has it, and is that of an attempt of the other.
   When the server forgets or fails over, the properties that Redis's data keep are not looked at until all older leases have ended. *)
EXTENDS RelockTrace

VARIABLES
    who,    \* the owner for which the server's holder has the lock
    count,  \* how often the server's holder has the lock, which re-entry of its epoch was the last, and the last token that was given
    copied, \* what is known of the replica, as of the server
    blind,  \* for how long a hold may be trusted that the server has forgotten
    block   \* the last token that a session has used, and the last of those that it has
more == <<who, count, copied, blind, block>>

None == [op |-> 0, holds |-> 0, last |-> 0]
Min(x, y) == IF x < y THEN x ELSE y

\* The tokens of a block that its session has not used are given again.
Given ==
    IF Step.kind = "release" /\ Has(server, Step.s) /\ server.epoch = Step.e /\ server.token <= Step.token
    THEN Min(count.last, Step.token) ELSE count.last

\* Beside what Relock.tla has, a session sends Resumes.
WorldRequests == Attempts \cup {"renew", "release", "resume"}

\* A token is right that is the record's, and high enough: the first of a block.
WorldNewToken(srv, seen) == IF Step.first > Max({Given, seen}) THEN Step.first ELSE 0

(* ------------------------------------------------------------------------------------------------------- sessions *)

\* Copies of requests that are not executed, and replies and pushes that are not heard, are left out.
Under(m) == IF Step.again THEN net \cup {m} ELSE net

\* A copy of an attempt is under way until its own notAfter.
Copy(age) == <<Step.e, age + NotAfter - Step.until>>
Unused == {g \in grants: g.m.s = Step.s /\ g.m.e = Me.epoch}

\* A Resume that had no reply is repeated with another epoch. What may be under way is refused by then.
Doubted == Step.kind = "resume" => Step.doubt + 2 >= Open(Step.s) /\ \A c \in Me.open: c[1] < Step.e
Asked == IF Step.kind = "resume" THEN Step.doubt ELSE Step.token

WorldAttempted ==
    /\ Step.kind \in Attempts \cup {"resume"} /\ ~inside[Step.s] /\ Doubted
    /\ Step.e > Me.epoch \/ (Step.e = Me.epoch /\ Me.phase = "asking")
    /\ Step.until <= NotAfter /\ Step.token >= Max({Me.token, block[Step.s].used})
    /\ session' = [session EXCEPT ![Step.s] =
            [@ EXCEPT !.phase = "asking", !.epoch = Step.e, !.trust = 0, !.open = @ \cup {Copy(0)}]]
    /\ net' = Sent(Under(Message(Step.kind, Step.s, Step.e, 0, Asked)), {}, session')
    /\ grants' = {g \in grants: g.m.s # Step.s \/ g.m.e = Step.e}
    /\ kept' = [kept EXCEPT ![Step.s] = Max({@} \cup {TraceTrust(g.m): g \in {g \in Unused: ~g.keep}})]

WorldReleased ==
    /\ Step.kind = "release" /\ Step.e <= Me.epoch
    /\ Step.e = Me.epoch =>
        /\ ~inside[Step.s] /\ Step.until + 2 >= Open(Step.s)
        /\ Step.token # 0 => Step.token >= block[Step.s].used
    /\ session' = IF Step.e < Me.epoch THEN session ELSE [session EXCEPT ![Step.s] = [@ EXCEPT !.phase = "releasing", !.trust = 0]]
    /\ net' = Sent(Under(Message(Step.kind, Step.s, Step.e, 0, Step.until)), {}, session')
    /\ UNCHANGED <<grants, kept>>

\* A session does not renew a hold that it keeps for its next owner and knows to be over.
WorldRenewed ==
    /\ Step.kind = "renew" /\ Step.e <= Me.epoch
    /\ Step.e = Me.epoch /\ Step.op = 0 /\ Me.phase = "lost" /\ ~inside[Step.s] => kept[Step.s] > 0
    /\ net' = Sent(Under(Message(Step.kind, Step.s, Step.e, 0, 0)), {}, session)
    /\ UNCHANGED <<session, grants, kept>>

WorldSend ==
    (WorldAttempted \/ WorldReleased \/ WorldRenewed) /\ UNCHANGED <<server, replica, world, inside, lapsed, trace, more>>

\* The way of a push is not known to the trace, so any age of it will do.
Arrived == {m \in net: m.kind = Step.kind /\ m.s = Step.s /\ m.e = Step.e /\ m.x = Step.token /\ (m.kind = "push" \/ m.age = Step.age)}

\* The reply to a Resume is worth as much as a grant.
AsGrant(m) == IF m.kind = "resumed" THEN [m EXCEPT !.kind = "granted"] ELSE m

\* A grant that no owner uses yet is renewed, or gone.
Confirmed(m) ==
    {IF g \in Unused /\ m.kind = "renewed" /\ ~Step.keep THEN [g EXCEPT !.m.kind = "granted", !.m.age = m.age, !.keep = FALSE] ELSE g:
        g \in {g \in grants: g \in Unused /\ m.kind \in {"renewed", "gone"} => m.x = g.m.x}}
\* So is a hold that an owner has left.
KeptBy(m) ==
    CASE Me.phase # "lost" \/ m.kind \notin {"renewed", "gone"} -> kept[m.s]
      [] m.x # Me.token -> 0
      [] OTHER -> IF Step.keep THEN kept[m.s] ELSE Max({kept[m.s], TraceTrust(m)})

\* The reply to a re-entry that left the lease as it was only confirms the hold.
Known(m) == IF m.kind = "renewed" /\ Step.keep /\ m.x = Me.token THEN Me ELSE Heard(Me, m)

WorldHear ==
    /\ IF Arrived = {} THEN Step.e # Me.epoch /\ UNCHANGED <<net, session, grants, kept>> \* no session acts on it
       ELSE \E m \in Arrived:
                /\ net' = IF Step.again THEN net ELSE net \ {m}
                /\ kept' = [kept EXCEPT ![m.s] = KeptBy(m)]
                /\ IF m.kind \in {"granted", "push", "resumed"}
                   THEN /\ grants' = grants \cup {[m |-> AsGrant(m), keep |-> Step.keep, last |-> Step.last, own |-> m.kind # "resumed"]}
                        /\ session' = IF m.kind = "push" THEN session ELSE [session EXCEPT ![m.s].open = @ \ {Copy(m.age)}]
                   ELSE /\ grants' = Confirmed(m)
                        /\ session' = [session EXCEPT ![m.s] =
                                [Known(m) EXCEPT !.open = IF m.kind = "freed" THEN {} ELSE @ \ {Copy(m.age)}]]
    /\ UNCHANGED <<server, replica, world, inside, lapsed, trace, more>>

\* A copy that was too late is not under way any more.
WorldRefused ==
    /\ session' = [session EXCEPT ![Step.s].open = @ \ {Copy(Step.age)}]
    /\ UNCHANGED <<server, replica, net, world, extra, more>>

\* Owners of a session have its hold in turn, each with a token of its own, as long as it is trusted. An owner whose hold was resumed
\* has the token that it had. A session that does not know yet that the server has forgotten its hold goes on with its block.
Unlike(token) == \A s \in Sessions: s = Step.s \/ Kept => token > block[s].used
Granted(g) ==
    /\ Unlike(IF g.own THEN Step.token ELSE Step.token + 1)
    /\ g.m.s = Step.s /\ g.m.e = Me.epoch /\ g.m.x <= Step.token /\ Step.token <= g.last
    /\ \E next \in {Heard(Me, g.m)}:
        /\ next.phase = "holding"
        /\ session' = [session EXCEPT ![Step.s] = IF g.keep THEN [next EXCEPT !.trust = kept[Step.s]] ELSE next]
    /\ block' = [block EXCEPT ![Step.s] = [used |-> Step.token, last |-> g.last]]

Inherited ==
    /\ Me.phase = "lost" /\ kept[Step.s] > 0 /\ Unlike(Step.token) /\ Step.token <= block[Step.s].last
    /\ session' = [session EXCEPT ![Step.s] = [@ EXCEPT !.phase = "holding", !.trust = kept[Step.s]]]
    /\ block' = [block EXCEPT ![Step.s].used = Step.token]

WorldGot ==
    /\ ~inside[Step.s]
    /\ Inherited \/ \E g \in grants: Granted(g)
    /\ inside' = [inside EXCEPT ![Step.s] = TRUE]
    /\ grants' = {g \in grants: g.m.s # Step.s}
    /\ UNCHANGED <<server, replica, net, world, kept, lapsed, trace, who, count, copied, blind>>

(* ---------------------------------------------------------------------------------------------------- the server *)

Shows(srv) ==
    /\ Live(srv) <=> Step.owner # ""
    /\ Live(srv) => srv.owner = Step.owner /\ srv.epoch = Step.oe /\ srv.left = Step.left
    /\ Step.top # 0 => srv.token = Step.first
    /\ [i \in DOMAIN srv.places |-> [s |-> srv.places[i].s, e |-> srv.places[i].e]] = Step.places

\* A Resume moves the hold of an owner to a session, with its token. A copy of an attempt that may be under way is refused.
Resume(m) ==
    LET was == server.tombs[m.s]
        buried == IF m.x = 0 THEN server
                  ELSE [server EXCEPT !.tombs[m.s] = [e |-> Max({m.e - 1, was.e}), left |-> Max({m.x, was.left})]]
        moved == [buried EXCEPT !.owner = m.s, !.epoch = m.e, !.left = Max({@, Lease}), !.ends = TRUE, !.places = Without(@, m.s)]
        reply(srv, kind, x) == Result(srv, {Message(kind, m.s, m.e, m.age, x)}, 0)
    IN  CASE m.e <= was.e -> reply(server, "stale", 0)
          [] ~Live(server) \/ who # Step.whose -> reply(buried, "gone", 0)
          [] Has(server, m.s) /\ m.e < server.epoch -> reply(server, "stale", 0)
          [] OTHER -> reply(moved, "resumed", server.token)

WorldExecuted(m) == IF m.kind = "resume" THEN Resume(m) ELSE Executed(m)

\* An attempt gets the lock for its owner, a Resume leaves it to the same one.
User(m) ==
    /\ who' = Step.user
    /\ m.kind = "resume" /\ Live(server') => who' = who
    /\ m.kind \in Attempts /\ Has(server', m.s) /\ server'.epoch = m.e /\ (server.epoch # m.e \/ server.owner # m.s) => who' = Step.whose

\* A takeover and a re-entry may leave the lease as it is.
Lasting(r, m) ==
    IF Step.keep /\ Has(server, m.s) /\ r.srv.owner = m.s /\ (m.kind = "renew" \/ m.e > server.epoch)
    THEN [r.srv EXCEPT !.left = server.left] ELSE r.srv

\* A re-entry says how often its epoch has the lock from then on, unless a later one was executed before.
Counted(m, token) ==
    LET last == IF token # 0 THEN Step.top ELSE Given
    IN  IF m.kind = "resume" THEN IF server.epoch = server'.epoch THEN count ELSE [count EXCEPT !.op = 0]
        ELSE IF ~Has(server, server'.owner) \/ server.epoch # server'.epoch
        THEN [op |-> 0, holds |-> IF m.kind \in Attempts /\ Has(server', m.s) THEN Step.wants ELSE Step.holds, last |-> last]
        ELSE IF m.s = server.owner /\ m.e = server.epoch /\ Step.op > count.op THEN [op |-> Step.op, holds |-> Step.wants, last |-> last]
        ELSE [count EXCEPT !.last = last]

Awaited(out) == {o \in out: IF o.kind = "push" THEN Step.pushed ELSE Step.heard}

\* What the script compares that takes a session's own lock over: that no other attempt or re-entry has been executed since.
Lean == Step.lean /\ Step.kind \in Attempts
Same == Has(server, Step.s) /\ server.epoch = Step.pe /\ count.op = Step.po
Compared ==
    IF Lean /\ Step.keep /\ Step.age > NotAfter THEN {Message(Step.kind, Step.s, Step.e, Step.age, Step.token)} ELSE {}

WorldRan ==
    \E m \in net \cup Compared: /\ Is(m) /\ (Lean => Same /\ Step.pe < Step.e) /\ (m.kind = "resume" => m.age <= NotAfter)
        /\ \E r \in {WorldExecuted(m)}:
            /\ server' \in Placed(Lasting(r, m), m.s) /\ Shows(server') /\ User(m)
            /\ count' = Counted(m, r.token)
            /\ Live(server') => count'.holds = Step.holds
            /\ Step.top # 0 => Step.first <= Step.top /\ count'.last = Step.top
            /\ net' = Sent(IF Step.again THEN net ELSE net \ {m}, Awaited(r.out), session)
            /\ world' = [world EXCEPT
                    !.rose = @ /\ (r.token = 0 \/ r.token > world.top),
                    !.top = Max({@, r.token}),
                    !.renewed = @ /\ \A o \in r.out: o.kind = "renewed" => Has(server, o.s) /\ server.epoch = o.e]
        /\ lapsed' = Lapsed(m)

WorldExecute == WorldRan /\ UNCHANGED <<replica, session, inside, grants, kept, trace, copied, blind, block>>

\* The server says that it is too late, which a session reckons by replies that took their time: it may be so early.
WorldLate == Step.kind \in Attempts \cup {"resume"} /\ Shows(server) /\ UNCHANGED <<server, replica, net, world, session, extra, more>>

\* The server forgets all, or an older copy takes over. A hold from before then is trusted for no longer than a lease: after that the
\* properties hold again.
Becomes(srv, known) ==
    /\ server' = srv /\ lapsed' = known.lapsed /\ who' = known.who /\ count' = known.count /\ blind' = Lease
    /\ UNCHANGED <<replica, net, session, world, inside, grants, kept, trace, copied, block>>

WorldForgets == Becomes(Empty, [lapsed |-> {}, who |-> "", count |-> None])
WorldFailsOver == Becomes(replica, copied)

WorldCopied ==
    /\ replica' = server /\ copied' = [lapsed |-> lapsed, who |-> who, count |-> count]
    /\ UNCHANGED <<server, net, session, world, extra, who, count, blind, block>>

WorldPass ==
    /\ Pass /\ blind' = Minus(blind, Step.at - now)
    /\ copied' = [copied EXCEPT !.lapsed = @ \cup Gone(replica, Step.at - now)]
    /\ UNCHANGED <<who, count, block>>

WorldKept == blind = 0

(* --------------------------------------------------------------------------------------------------- the trace *)

WorldTaken ==
    CASE Step.what = "execute" -> WorldExecute
      [] Step.what = "send" -> WorldSend
      [] Step.what = "late" -> WorldLate
      [] Step.what = "hear" -> IF Step.kind = "late" THEN WorldRefused ELSE WorldHear
      [] Step.what = "got" -> WorldGot
      [] Step.what = "forget" -> WorldForgets
      [] Step.what = "copy" -> WorldCopied
      [] Step.what = "restore" -> WorldFailsOver
      [] Step.what = "left" -> Leaving(Step.s) /\ UNCHANGED more

WorldInit ==
    /\ TraceInit /\ who = "" /\ count = None /\ blind = 0 /\ copied = [lapsed |-> {}, who |-> "", count |-> None]
    /\ block = [s \in Sessions |-> [used |-> 0, last |-> 0]]
WorldNext ==
    /\ at <= Len(Recorded[trace])
    /\ WorldPass \/ (now = Step.at /\ WorldTaken /\ at' = at + 1 /\ UNCHANGED now /\ Note)
WorldSpec == WorldInit /\ [][WorldNext]_<<vars, at, now, extra, more>>
=============================================================================
