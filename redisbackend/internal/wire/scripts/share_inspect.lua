-- share_inspect: reads the state of a shared name. It writes nothing.
--
-- KEYS  1 hold  2 record
-- ARGV  none
-- Returns  {now, then each field of the record and its text, but not the places}; only now if the name is not in use
--          or the error WRONGTYPE: the name is that of another kind of lock
-- Keeps    everything.
-- Twice    the same reply.
-- Late     the reply has the state at the time of the run.

local now = clock()
local raw = redis.pcall('HGETALL', KEYS[2])
if raw.err or not raw[1] and redis.call('PTTL', KEYS[1]) ~= -2 then return wrong() end
local answer = {now}
for i = 1, #raw, 2 do
  if not isplace(raw[i]) or string.sub(raw[i], 1, 2) == notefield('') then
    answer[#answer + 1], answer[#answer + 2] = raw[i], raw[i + 1]
  end
end
return answer
