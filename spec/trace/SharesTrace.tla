----------------------------- MODULE SharesTrace -----------------------------
(* Whether Shares.tla explains a trace of a read-write lock, as RelockTrace.tla says of an exclusive one: what sessions sent, what
   the server executed and replied, what they heard, and for how long their owners read or wrote. The module Traces has them, as
   TestSharedTraces of package faults records them.

   What the server does is Shares.tla's Share, to the letter. (A copy whose session has got other units than it keeps since its first
   copy is answered with none there, and by the scripts with those: this needs a place that outlives a lease, and these traces have
   none.) After each command its entries, its queue and its last token are compared, and who is asked to give back. What a session does is checked by what can be seen: what a request keeps, that its owners
   come in by units that it has heard of, and stay no longer than these are trusted, and that what it gives back is out of use.

   The code does more than Shares.tla says, which is added here. A renewal is a command of its own: it serves no queue, and may confirm
   the units of an older epoch while a request is under way. A writer has a block of tokens, and gives back those that it has not used.
   A push to a session that keeps units is not believed, and another one not always. A session whose place has ended goes on with the
   units that it keeps. The server remembers an epoch for longer than it must, and forgets a name that is not in use. It asks sessions to
   give back as soon as one waits, and says so in replies and pushes. Tries are not in the traces, nor are semaphores. *)
EXTENDS Shares, Traces

VARIABLES
    trace,  \* which one it is
    at,     \* the step that is next
    now,    \* the time of the one before
    inside, \* how many owners of each session read, and how many write
    claim,  \* the last request of each session
    book,   \* of each session the first token that the server gave to it, and the highest that its request named
    block,  \* of each session the tokens that it has heard of as a writer, and the last one that it has used
    used,   \* the highest token that an owner has used
    told,   \* the sessions that the server has told to give back, or whose place has ended: they hear it with the next heartbeat
    blind   \* for how long units may be trusted that the server has forgotten
extra == <<trace, inside, claim, book, block, used, told, blind>>

Step == Recorded[trace][at]
Me == session[Step.s]
Is(m) == m.kind = Step.kind /\ m.s = Step.s /\ m.e = Step.e /\ m.age = Step.age
InUse(s) == IF inside[s].writers > 0 THEN Limit ELSE Min(inside[s].readers, 1)
Holders(srv) == {s \in Sessions: Units(srv, s) > 0}

(* cfg puts these in the place of Shares.tla's. *)

\* The margin is a hundredth of a lease, and two milliseconds, which pay here for what is rounded.
TraceTrust(m) == LET ticks == IF m.kind = "push" THEN GrantTTL ELSE Lease IN Minus(ticks, ticks \div 100 + m.age)

\* Replies that no session acts on are not kept.
TraceIgnored(m, ss) ==
    CASE m.kind = "share" -> m.age > NotAfter
      [] m.kind = "renew" -> FALSE
      [] m.kind \in {"renewed", "gone"} -> m.age > NotAfter
      [] OTHER -> m.e # ss[m.s].epoch \/ m.age > Lease

TraceKept == blind = 0

(* ---------------------------------------------------------------------------------------------------------- time *)

\* An entry without units and place stays until a command takes it away.
AfterEntry(entry, n) ==
    LET left == Minus(entry.left, n)
    IN  [entry EXCEPT !.left = left, !.memory = Minus(@, n), !.units = IF left = 0 THEN 0 ELSE @, !.token = IF left = 0 THEN 0 ELSE @]
After(srv, n) ==
    [srv EXCEPT !.queue = SelectSeq([i \in DOMAIN @ |-> [@[i] EXCEPT !.left = Minus(@, n)]], LAMBDA p: p.left > 0),
                !.entries = [s \in Sessions |-> AfterEntry(@[s], n)]]
AfterSession(me, n) == IF me.has > 0 /\ me.trust <= n THEN Lost(me) ELSE [me EXCEPT !.trust = Minus(@, n)]

\* Time passes, for no longer than a session trusts the units that its owners use.
Pass ==
    /\ now < Step.at
    /\ \E n \in {Step.at - now}:
        /\ \A s \in Sessions: InUse(s) > 0 => session[s].trust >= n /\ session[s].has >= InUse(s)
        /\ server' = After(server, n)
        /\ session' = [s \in Sessions |-> AfterSession(session[s], n)]
        /\ net' = Sent({}, {[m EXCEPT !.age = @ + n]: m \in net}, session')
        /\ blind' = Minus(blind, n)
        /\ told' = told \cup {s \in Sessions: At(server, s) # 0 /\ At(server', s) = 0}
    /\ now' = Step.at /\ UNCHANGED <<world, trace, at, inside, claim, book, block, used>>

(* ------------------------------------------------------------------------------------------------------- sessions *)

\* A writer's session that gives units back names the last token that its owners have used.
TailRight ==
    Me.has = Limit /\ Step.keep < Limit /\ Step.under = Me.token =>
        LET b == block[Step.s] IN Step.tail <= b.last /\ (b.used # 0 => Step.tail >= b.used)

Claim == [keep |-> Step.keep, want |-> Step.want, under |-> Step.under, tail |-> Step.tail, seen |-> Step.seen]

\* What a session says with a new epoch. It keeps what its owners use.
Said ==
    /\ Step.kind = "share" /\ Step.e > Me.epoch
    /\ InUse(Step.s) <= Step.keep /\ Step.keep <= Me.has /\ Step.keep <= Step.want
    /\ (Step.keep > 0 => Step.under = Me.token) /\ TailRight
    /\ session' = [session EXCEPT ![Step.s] =
            [@ EXCEPT !.phase = IF Step.want > Step.keep THEN "asking" ELSE "telling", !.epoch = Step.e, !.has = Step.keep,
                      !.keep = Step.keep, !.want = Step.want, !.trust = IF Step.keep > 0 THEN @ ELSE 0,
                      !.token = IF Step.keep > 0 THEN @ ELSE 0]]
    /\ claim' = [claim EXCEPT ![Step.s] = Claim]

\* A copy says the same.
Repeated == Step.kind = "share" /\ Step.e = Me.epoch /\ Claim = claim[Step.s] /\ UNCHANGED <<session, claim>>

Renewed == Step.kind = "renew" /\ Step.e <= Me.epoch /\ Me.has > 0 /\ Step.under = Me.token /\ UNCHANGED <<session, claim>>

TraceSend ==
    /\ Said \/ Repeated \/ Renewed
    /\ net' = Sent(net, {[Request(Step.s, Step.e, Step.keep, Step.want, Step.under) EXCEPT !.kind = Step.kind]}, session')
    /\ UNCHANGED <<server, world, trace, inside, book, block, used, told, blind>>

Confirmed(m) ==
    CASE Me.has > 0 /\ m.token = Me.token /\ m.units >= Me.has -> [Me EXCEPT !.trust = Max({@, TraceTrust(m)})]
      [] Me.phase = "settled" /\ m.e = Me.epoch /\ m.units < Me.has -> Lost(Me)
      [] OTHER -> Me

\* What a session may make of a message.
Acts(m) ==
    CASE m.kind \in {"renewed", "gone"} -> {Confirmed(m)}
      [] m.kind = "push" -> IF claim[m.s].keep > 0 THEN {Me} ELSE {Me, Heard(Me, m)}
      [] m.kind = "ok" /\ Me.phase = "asking" /\ 0 < Me.keep /\ Me.keep <= m.units /\ m.units < Me.want ->
            {[Keeps(Me, m) EXCEPT !.phase = "kept"]}
      [] OTHER -> {Heard(Me, m)}

Arrived == {m \in net: Is(m) /\ m.units = Step.units /\ m.token = Step.under /\ m.kept = Step.kept}
TraceHear ==
    /\ IF Arrived = {} THEN Step.kind \notin {"renewed", "gone"} /\ Step.e # Me.epoch /\ UNCHANGED <<net, session, block>>
       ELSE \E m \in Arrived:
            /\ net' = IF Step.again THEN net ELSE net \ {m}
            /\ \E me \in Acts(m): session' = [session EXCEPT ![Step.s] = me]
            /\ block' = IF Step.units = Limit /\ Step.kind \in {"ok", "push"} /\ Step.first # block[Step.s].first
                        THEN [block EXCEPT ![Step.s] = [first |-> Step.first, last |-> Step.last, used |-> 0]] ELSE block
    /\ UNCHANGED <<server, world, trace, inside, claim, book, used, told, blind>>

\* An owner comes in. A writer's token is above all that were used before, and a reader's version above all writers'.
Writes == /\ Me.has = Limit /\ inside[Step.s] = [readers |-> 0, writers |-> 0]
          /\ block[Step.s].first <= Step.token /\ Step.token <= block[Step.s].last /\ Step.token > block[Step.s].used
          /\ Kept => Step.token > used
Reads == /\ Me.has > 0 /\ (inside[Step.s].writers > 0 <=> Step.reads)
         /\ Kept /\ ~Step.reads => Step.token >= used
Comes ==
    /\ Me.trust > 0 /\ (IF Step.writes THEN Writes ELSE Reads)
    /\ inside' = [inside EXCEPT ![Step.s] = IF Step.writes THEN [@ EXCEPT !.writers = 1] ELSE [@ EXCEPT !.readers = @ + 1]]
    /\ block' = IF Step.writes THEN [block EXCEPT ![Step.s].used = Step.token] ELSE block
    /\ used' = Max({used, Step.token})
    /\ UNCHANGED <<server, net, session, world, trace, claim, book, told, blind>>

\* It leaves, or knows that it has lost its side.
Leaves ==
    /\ inside' = [inside EXCEPT ![Step.s] = IF Step.writes THEN [@ EXCEPT !.writers = @ - 1] ELSE [@ EXCEPT !.readers = @ - 1]]
    /\ UNCHANGED <<server, net, session, world, trace, claim, book, block, used, told, blind>>

(* ---------------------------------------------------------------------------------------------------- the server *)

\* The last token, once a writer's session has given those back that it has not used. A name that is not in use is forgotten.
Entry == server.entries[Step.s]
IsNew == Step.kind = "share" /\ Step.e > Entry.e
Tailed ==
    /\ IsNew /\ Entry.units = Limit /\ Step.keep < Limit /\ Step.under = Entry.token
    /\ book[Step.s].first <= Step.tail /\ Step.tail < server.last
Base == IF Step.fresh THEN 0 ELSE IF Tailed THEN Step.tail ELSE server.last
TraceToken(srv, want) == IF want = Limit THEN Step.block ELSE IF Base = 0 THEN Step.top ELSE Base
Disused ==
    /\ Step.what = "execute" /\ Step.fresh /\ server.entries # Empty.entries
    /\ server.queue = <<>> /\ \A s \in Sessions: Units(server, s) = 0 /\ server.entries[s].memory <= 3
    /\ server' = Empty /\ told' = {}
    /\ UNCHANGED <<net, session, world, trace, at, now, inside, claim, book, block, used, blind>>

Renewal(m) ==
    IF Entry.e = m.e /\ Entry.units > 0 /\ Entry.token = m.token
    THEN [srv |-> [server EXCEPT !.entries[m.s].left = Max({@, Lease})],
          out |-> {Reply("renewed", m.s, m.e, m.age, Entry.units, Entry.token)}]
    ELSE [srv |-> server, out |-> {Reply("gone", m.s, m.e, m.age, 0, 0)}]

\* Who has got units, and all of them.
Before(s) == IF s = Step.s /\ IsNew THEN Step.keep ELSE Units(server, s)
Gains(srv) == {s \in Sessions: Units(srv, s) > Before(s)}
Writers(srv) == {s \in Gains(srv): Units(srv, s) = Limit}

\* A writer's block is above all tokens before it. Otherwise no token is given, but the first.
TokensRight(srv) ==
    CASE Writers(srv) # {} -> /\ Step.block > Base /\ Step.block <= Step.top
                              /\ \A s \in Writers(srv): Step.block > (IF s = Step.s /\ IsNew THEN Step.seen ELSE book[s].seen)
      [] Gains(srv) # {} /\ Base = 0 -> Step.top > 0
      [] OTHER -> Step.top = Base
First(srv, s) ==
    CASE Units(srv, s) = 0 -> 0
      [] s \in Gains(srv) -> TraceToken(srv, Units(srv, s))
      [] s = Step.s /\ Units(srv, s) < Units(server, s) -> Base \* a writer goes on as a reader
      [] OTHER -> book[s].first
Booked(srv) == [s \in Sessions |-> [first |-> First(srv, s), seen |-> IF s = Step.s /\ IsNew THEN Step.seen ELSE book[s].seen]]
Last(srv, s) == IF Units(srv, s) = Limit THEN Step.top ELSE First(srv, s)

\* An entry is forgotten only when no copy of an older request can come any more.
Forgotten(srv, s) == Step.entries[s].e = 0 /\ Units(srv, s) = 0 /\ At(srv, s) = 0 /\ srv.entries[s].memory <= 3
Shows(srv) ==
    /\ \A s \in Sessions: Forgotten(srv, s) \/
        /\ srv.entries[s].e = Step.entries[s].e /\ Units(srv, s) = Step.entries[s].units
        /\ Units(srv, s) > 0 => /\ srv.entries[s].left = Step.entries[s].left /\ srv.entries[s].token = Step.entries[s].under
                                /\ First(srv, s) = Step.entries[s].first
    /\ srv.queue = Step.queue

\* A session is asked to give back if another one is the head of the queue, and any has units.
Asks(srv, s) == srv.queue # <<>> /\ Head(srv.queue).s # s /\ Holders(srv) \ {Head(srv.queue).s} # {}
Says(r, m) ==
    /\ \E o \in r.out: o.kind = Step.reply /\ o.s = m.s /\ o.units = Step.units
    /\ {<<o.s, o.e, o.units>>: o \in {o \in r.out: o.kind = "push"}} = {<<p.s, p.e, p.units>>: p \in Step.pushes}
    /\ \A p \in Step.pushes: p.first = First(r.srv, p.s) /\ p.last = Last(r.srv, p.s) /\ p.asked = Asks(r.srv, p.s)
    /\ Step.reply \in {"ok", "queued"} =>
        /\ Step.asked = Asks(r.srv, m.s)
        /\ Units(r.srv, m.s) > 0 => Step.first = First(r.srv, m.s) /\ Step.last = Last(r.srv, m.s)

\* Those that have units know that others wait. They are told again with each heartbeat of the head, and when no session waits any more.
Told(srv) ==
    LET asked == {s \in Sessions: s \in Step.wanted \/ (s = Step.s /\ Step.asked) \/ \E p \in Step.pushes: p.s = s /\ p.asked}
        heard == Step.calmed \cup {Step.s} \cup {p.s: p \in Step.pushes}
    IN  (told \ heard) \cup asked
Tells(srv) ==
    /\ \A s \in Step.wanted: Asks(srv, s)
    /\ Step.calmed # {} => srv.queue = <<>>
    /\ ~IsNew /\ srv.queue # <<>> /\ Head(srv.queue).s = Step.s => Step.wanted = Holders(srv) \ ({Step.s} \cup {p.s: p \in Step.pushes})
    /\ \A s \in Holders(srv): Asks(srv, s) => s \in Told(srv)

Ran ==
    /\ Step.fresh => server.entries = Empty.entries
    /\ \E m \in net: /\ Is(m)
        /\ \E r \in {IF m.kind = "renew" THEN Renewal(m) ELSE Share(m)}:
            /\ TokensRight(r.srv) /\ Shows(r.srv) /\ Says(r, m)
            /\ Step.reply \in {"ok", "queued"} => Tells(r.srv)
            /\ server' = [r.srv EXCEPT !.last = Step.top,
                                       !.entries = [s \in Sessions |-> IF Forgotten(r.srv, s) THEN NoEntry ELSE @[s]]]
            /\ net' = Sent(IF Step.again THEN net ELSE net \ {m}, {o \in r.out: o.kind # "wanted"}, session)
            /\ book' = Booked(r.srv)
            /\ told' = IF Step.reply \in {"ok", "queued"} THEN Told(r.srv) ELSE told
            /\ \E top \in {IF Tailed THEN Min(world.top, Step.tail) ELSE world.top}:
                world' = [world EXCEPT
                    !.top = Max({top, Step.top}),
                    !.highest[m.s] = Max({@, r.srv.entries[m.s].e}),
                    !.rose = @ /\ (Writers(r.srv) # {} => Step.block > top),
                    !.apart = @ /\ (Gains(r.srv) \ Writers(r.srv) # {} => Step.top >= top)]

\* What comes too late does nothing.
Late == Step.reply = "late" /\ Step.age > NotAfter /\ UNCHANGED <<server, net, world, book, told>>

TraceExecute == (IF Step.reply = "late" THEN Late ELSE Ran) /\ UNCHANGED <<session, trace, inside, claim, block, used, blind>>

Drop == net' = {m \in net: ~Is(m)} /\ UNCHANGED <<server, session, world, extra>>

\* A unit from before Redis forgot is trusted for no longer than a lease, as is one that a late copy then gets.
Forgets ==
    /\ server' = Empty /\ blind' = Lease + NotAfter /\ told' = {}
    /\ UNCHANGED <<net, session, world, trace, inside, claim, book, block, used>>

(* --------------------------------------------------------------------------------------------------- the trace *)

Taken ==
    CASE Step.what = "send" -> TraceSend
      [] Step.what = "execute" -> TraceExecute
      [] Step.what = "hear" -> TraceHear
      [] Step.what = "drop" -> Drop
      [] Step.what = "got" -> Comes
      [] Step.what \in {"left", "lost"} -> Leaves
      [] Step.what = "flush" -> Forgets

\* TLC prints how far it has come with each trace.
Note == at > TLCGet(trace) => TLCSet(trace, at) /\ PrintT(<<trace, at>>)

TraceInit ==
    /\ trace \in DOMAIN Recorded /\ TLCSet(trace, 0)
    /\ Init /\ at = 1 /\ now = 0
    /\ inside = [s \in Sessions |-> [readers |-> 0, writers |-> 0]]
    /\ claim = [s \in Sessions |-> [keep |-> 0, want |-> 0, under |-> 0, tail |-> 0, seen |-> 0]]
    /\ book = [s \in Sessions |-> [first |-> 0, seen |-> 0]]
    /\ block = [s \in Sessions |-> [first |-> 0, last |-> 0, used |-> 0]]
    /\ used = 0 /\ told = {} /\ blind = 0
TraceNext ==
    /\ at <= Len(Recorded[trace])
    /\ Pass \/ Disused \/ (now = Step.at /\ Taken /\ at' = at + 1 /\ UNCHANGED now /\ Note)
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at, now, extra>>

\* Nobody reads while another session writes, and one session writes at most, as long as Redis keeps its data.
Apart == Kept => Sum([s \in Sessions |-> InUse(s)], Sessions) <= Limit
=============================================================================
