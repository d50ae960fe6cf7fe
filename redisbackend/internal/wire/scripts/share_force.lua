-- share_force: takes the units of all sessions that have some, for the head of the queue. A session that had units
-- loses its place too: it would not learn that they were gone if it was granted more before it asks.
--
-- KEYS  1 hold  2 record
-- ARGV  1 kind: r or p  2 channel prefix  3 seconds that the record is kept
-- Returns  {code, now}   1 a session had units   0 no session had any
--          or the error WRONGTYPE: the name is that of another kind of lock; nothing is touched
-- Keeps    the last token; the entries: an older epoch stays older, and one that had units is gone from here on.
-- Twice    the second run takes the units from those to whom the first gave them: it is not for retrying.

now, s, kind, channel = clock(), shared(KEYS[1], KEYS[2]), ARGV[1], ARGV[2]
if not s or s.kind and s.kind ~= kind then return wrong() end
settle()
local had = false
for _, e in ipairs(s.list) do
  if e.units > 0 then
    had, e.units, e.first, e.till = true, 0, 0, 0
    clear(e)
  end
end
if not had then return {0, now} end
local granted = serve(nil, 0)
save(KEYS[2], nil, ARGV[3])
announce(KEYS[1], nil, granted, allowance())
return {1, now}
