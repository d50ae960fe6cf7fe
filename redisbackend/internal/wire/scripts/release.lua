-- release: gives up what a session's attempts up to an epoch have of the lock: the hold, the grant or the place. The
-- lock goes to the first live waiter. Release is also sent to withdraw a waiter, and after an attempt of unknown
-- outcome.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 session  2 epoch
--       3 doubt, us: for this long from now on a copy of such an attempt may still be under way; 0: none is
--       4 used: the last token used of the attempt's block; 0 for all of it
--       5 channel prefix   6 seconds that the record is kept
--       7 stays, ms: for this long no session gets the lock, if this session had it; 0: the first live waiter gets it
-- Returns  {code, now}   1 released: the session had the lock   2 withdrawn: it had a place   3 it had nothing
-- Keeps    what a higher epoch of the session has is not changed; tokens rise. A hold that stays is of no session.
-- Twice    the second run finds nothing of the session.
-- Late     what the session got later has a higher epoch, and is not changed. A tombstone, and a hold that stays, last
--          longer by as much as the run is late.

local session, epoch, doubt, used = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local stays = tonumber(ARGV[7])
local NO_SESSION = '!' -- no session has this id
local RELEASED, WITHDRAWN, NOTHING = 1, 2, 3

local now = clock()
local rec, field, mine = look(KEYS, session)
if rec.err then return rec end
local code, free, dirty = NOTHING, not field, false

if mine and (rec.session ~= session or tonumber(rec.epoch) <= epoch) then
  code, free = RELEASED, stays == 0
  if rec.session == session and tonumber(rec.epoch) == epoch and rec.first <= used and used < rec.last then
    rec.last, dirty = used, true -- the unused tail of the block
  end
end
if code == NOTHING then
  local raw = redis.call('HGET', KEYS[4], session)
  if raw and not string.find(raw, '^%d') then raw = '0' end -- a place that cannot be read
  if raw and tonumber(string.match(raw, '^%d+')) <= epoch then
    code = WITHDRAWN
    drop(KEYS, session)
  end
end
if code == RELEASED and stays > 0 then -- the new field comes before the old one goes, or the hash would go too
  local holds = redis.call('HGET', KEYS[1], field)
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
  redis.call('HSET', KEYS[1], NO_SESSION .. ':' .. field, holds)
  redis.call('HDEL', KEYS[1], field)
  rec.state, dirty = 'h', tonumber(rec.keep) > 0 -- its session gets no more messages about waiters
end
if doubt > 0 then
  entomb(rec, session, epoch, now + doubt, now)
  rec.keep, dirty = longer(rec.keep, ARGV[6]), true
end
if free then -- if the session still has a place up to epoch, a run that stopped during a grant has left it
  free = vacate(KEYS, rec, now, field, ARGV[5], dirty, session, epoch)
elseif dirty then
  save(KEYS[2], rec, now)
  if code == RELEASED then outlast(KEYS[2], text(rec.keep + math.ceil(stays / 1000))) end -- inspect.lua reads it
end
--redisson if free and code == RELEASED then freed(KEYS[1]) end
return {code, now}
