-- release: gives up what a session's attempts up to an epoch have of the lock: the hold, the grant or the place. The
-- lock goes to the first live waiter. It is also the withdrawal of a waiter and the clean-up after an attempt of
-- unknown outcome.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 session  2 epoch
--       3 doubt, us: for this long from now on a copy of such an attempt may still be under way; 0: none is
--       4 used: the last token used of the attempt's block; 0 for all of it
--       5 channel prefix   6 seconds that the record is kept
-- Returns  {code, now}   1 released: it was the holder   2 withdrawn: it had a place   3 it had nothing
-- Keeps    what a higher epoch of the session has is not changed; tokens rise.
-- Twice    the second run finds nothing of the session.
-- Late     what came after it has a higher epoch. A tombstone lasts longer by as much as it is late.

local session, epoch, doubt, used = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local RELEASED, WITHDRAWN, NOTHING = 1, 2, 3

local now = clock()
local rec = record(redis.call('GET', KEYS[2]))
local field, mine = holder(KEYS[1], session)
local code, dirty = NOTHING, false

if mine and (rec.session ~= session or tonumber(rec.epoch) <= epoch) then
  code = RELEASED
  redis.call('DEL', KEYS[1])
  field = nil
  if rec.session == session and tonumber(rec.epoch) == epoch and rec.first <= used and used < rec.last then
    rec.last, dirty = used, true -- the unused tail of the block
  end
end
if code == NOTHING then
  local raw = redis.call('HGET', KEYS[4], session)
  if raw and tonumber(string.match(raw, '^%d+')) <= epoch then
    code = WITHDRAWN
    drop(KEYS[3], KEYS[4], session)
  end
end
if doubt > 0 then
  entomb(rec, session, epoch, now + doubt, now)
  rec.keep, dirty = longer(rec.keep, ARGV[6]), true
end
local next = not field and waiting(KEYS[3], KEYS[4], now)
if next then
  grant(KEYS[1], KEYS[2], KEYS[3], KEYS[4], rec, now, next, ARGV[5])
elseif dirty then
  save(KEYS[2], rec, now)
end
--redisson if code == RELEASED then freed(KEYS[1]) end
return {code, now}
