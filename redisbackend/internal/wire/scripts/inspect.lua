-- inspect: reads the state of a lock. It writes nothing.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters  5 note
-- ARGV  none
-- Returns  {now, field or "", holds, TTL in ms, first token, last token, session, epoch, state, note or "", then each
--          live waiting session, longest first}; session, epoch and note are those of the record
--          or the error WRONGTYPE: the key has something else than a lock
-- Keeps    everything.
-- Twice    the same reply.
-- Late     the reply is of when it arrives.

local now = clock()
local rec = record(redis.call('GET', KEYS[2]))
local pair, ttl = redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1])
local other = pair[1] and foreign(pair[1], ttl)
if other then return other end
local note = pair[1] and noted(KEYS[5], rec) or ''
local answer = {now, pair[1] or '', tonumber(pair[2] or 0), ttl,
  rec.first, rec.last, rec.session, tonumber(rec.epoch), rec.state, note}
for _, session in ipairs(redis.call('LRANGE', KEYS[3], '0', '-1')) do
  local raw = redis.call('HGET', KEYS[4], session)
  local deadline = raw and string.match(raw, '^%d+ (%d+)')
  if deadline and now <= tonumber(deadline) then answer[#answer + 1] = session end
end
return answer
