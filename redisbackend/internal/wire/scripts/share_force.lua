-- share_force: takes the units of all sessions that have some, for the head of the queue. A session that had units
-- loses its place too: if it were granted more units there, it would not learn that the first units were gone.
--
-- KEYS  1 hold  2 record
-- ARGV  1 kind: r or p  2 channel prefix  3 seconds that the record is kept
--       4 not after: Redis time, us, from which this copy is refused
-- Returns  {code, now}   1 a session had units   0 no session had any   2 late: not after has passed
--          or the error WRONGTYPE: the name is that of another kind of lock; nothing is touched
-- Keeps    the last token; the entries, so that lower epochs stay stale. An epoch that had units has none from here on.
-- Twice    the second run takes the units from the sessions to which the first gave them, so do not send it again.
-- Late     until its not after a run takes the units of the next holders, too; after that it does nothing.

now, key, hold, channel = clock(), KEYS[2], KEYS[1], ARGV[2]
if now > tonumber(ARGV[4]) then return {2, now} end
local refused = open(ARGV[1], '', KEYS[1])
if refused then return refused end
s.soonest = 0
settle()
if s.units == 0 then return {0, now} end
for _, e in ipairs(everyone()) do
  if e.units > 0 then
    leave(e)
    change(e, 0, 0)
    e.first, e.till = 0, 0
    ends(e.memory + SWEEP)
  end
end
local news, first = serve(nil, 0)
local _, send = announce(nil, news, first)
save(ARGV[3])
send()
return {1, now}
