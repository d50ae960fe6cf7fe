-- inspect: reads the state of a lock. It writes nothing.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters  5 note
-- ARGV  none
-- Returns  {now, field or "", holds, TTL in ms, first token, last token, session, epoch, state, note or "", then each
--          live waiting session, longest first}; session, epoch and note are those of the record
--          or the error WRONGTYPE: the key has something else than a lock
-- Keeps    everything.
-- Twice    the same reply.
-- Late     the reply has the state at the time of the run.

local now = clock()
local rec = record(redis.pcall('GET', KEYS[2]))
if rec.err then return rec end
local all = redis.pcall('HGETALL', KEYS[1])
if all.err then return all end
local field, holds, ttl = sole(all, rec), '0', redis.call('PTTL', KEYS[1])
for i = 1, #all, 2 do
  if all[i] == field then holds = all[i + 1] end
end
local other = field and foreign(KEYS, rec, field, ttl, nil, holds)
if other then return other end
local note = field and noted(KEYS[5], rec) or ''
local answer = {now, field or '', tonumber(holds), ttl,
  rec.first, rec.last, rec.session, tonumber(rec.epoch), rec.state, note}
for _, session in ipairs(redis.call('LRANGE', KEYS[3], '0', '-1')) do
  local raw = redis.call('HGET', KEYS[4], session)
  local deadline = raw and string.match(raw, '^%d+ (%d+)')
  if deadline and now <= tonumber(deadline) then answer[#answer + 1] = session end
end
return answer
