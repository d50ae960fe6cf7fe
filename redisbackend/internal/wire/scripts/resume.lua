-- resume: moves the hold of an owner from any session to this one. The owner has the same id in the whole deployment.
-- The script takes no free lock and no other owner's, and never queues.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters  5 note
-- ARGV  1 session  2 epoch  3 owner  4 lease, ms: the TTL is at least that afterwards
--       5 not after: Redis time, us, from which this copy is refused  6 highest token this session has seen
--       7 channel prefix  8 seconds that the record is kept  9 "f": the TTL stays, if there is one
--       10 doubt, us: for this long from now on a copy of an earlier attempt may still be under way; 0: none is
-- Returns  {code, now, holds, token, TTL in ms, note if there is one}
--   1 resumed   2 gone: the owner does not have the lock   3 stale: a later attempt of this session has it, or this
--   one was given up   4 late: not after has passed   or the error FARTOKEN, and nothing is touched
-- Keeps    the hold count, the token and the note; the TTL never shrinks.
-- Twice    the second run finds that the session has the hold, and returns the same reply.
-- Late     after its not after it does nothing; nor after a later attempt of the session, which knew that this copy
--          might be under way.

local session, epoch, owner, seen, doubt = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[6]), tonumber(ARGV[10])
local RESUMED, GONE, STALE, LATE = 1, 2, 3, 4

local now = clock()
if now > tonumber(ARGV[5]) then return {LATE, now, 0, 0, 0} end
local rec, field = look(KEYS, session)
if rec.err then return rec end
if rec.tombs ~= '' and entombed(rec, session, epoch, now) then return {STALE, now, 0, 0, 0} end
if doubt > 0 then
  entomb(rec, session, epoch - 1, now + doubt, now)
  rec.keep = longer(rec.keep, ARGV[8])
end
local from, by = string.match(field or '', '^([^:]*):(.*)$')
if by ~= owner then
  if doubt > 0 then save(KEYS[2], rec, now) end -- an earlier copy must not move a hold that the owner gets later
  return {GONE, now, 0, 0, 0}
end
if rec.session == session and tonumber(rec.epoch) > epoch then return {STALE, now, 0, 0, 0} end
local refused = far(rec, now, 1, seen)
if refused then return refused end
for i, read in ipairs({'LINDEX', 'HEXISTS'}) do -- the queue and the waiters, before anything is written
  local found = redis.pcall(read, KEYS[i + 2], '0')
  if type(found) == 'table' then return found end
end

local holds = redis.call('HGET', KEYS[1], field)
if not counted(holds) then return garbage('a hash that is not a lock') end
if from ~= session then
  redis.call('HSET', KEYS[1], session .. ':' .. owner, holds)
  redis.call('HDEL', KEYS[1], field)
end
if rec.session ~= session or tonumber(rec.epoch) < epoch then
  local last = rec.epoch
  if rec.session ~= from then -- the record was lost without the hold (eviction): issue a new token
    issue(rec, now, session, ARGV[2], 1, seen, 'h', ARGV[8])
    last = '0'
  end
  rec.session, rec.epoch, rec.op, rec.state, rec.keep = session, ARGV[2], '0', 'h', longer(rec.keep, ARGV[8])
  save(KEYS[2], rec, now)
  drop(KEYS, session) -- the place of an earlier attempt: a session that has the lock does not wait for it
  if from ~= session then redis.pcall('PUBLISH', ARGV[7] .. from, 't ' .. last .. ' ' .. KEYS[1]) end
end
local ttl = redis.call('PTTL', KEYS[1])
if ttl < 0 or ARGV[9] ~= 'f' and ttl < tonumber(ARGV[4]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  ttl = tonumber(ARGV[4])
end
return {RESUMED, now, tonumber(holds), rec.last, ttl, noted(KEYS[5], rec)}
