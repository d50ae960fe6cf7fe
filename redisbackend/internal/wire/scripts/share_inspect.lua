-- share_inspect: reads the state of a shared name. It writes nothing.
--
-- KEYS  1 hold  2 record
-- ARGV  none
-- Returns  {now, kind or "", token, then of each session with live units or a live place: session, epoch, units,
--          the token under which it got the first of them, what is left of their lease in us, limit, order of its place
--          or 0, want, least, when it was last granted units}
--          or the error WRONGTYPE: the name is that of another kind of lock
-- Keeps    everything.
-- Twice    the same reply.
-- Late     the reply is of when it arrives.

local now = clock()
local raw = redis.pcall('HGETALL', KEYS[2])
if raw.err or not raw[1] and redis.call('PTTL', KEYS[1]) ~= -2 then return wrong() end
local answer = {now, '', 0}
for i = 1, #raw, 2 do
  local session = raw[i]
  if session == '=' then
    local kind, token = string.match(raw[i + 1], SUMMARY)
    if not kind then return wrong() end
    answer[2], answer[3] = kind, tonumber(token)
  elseif not isplace(session) then
    local e = read(session, raw[i + 1])
    if not e then return wrong() end
    local units = now <= e.till and e.units or 0
    local order = now <= e.deadline and e.order or 0
    if units > 0 or order > 0 then
      for _, x in ipairs({e.session, tonumber(e.epoch), units, e.under, e.till - now, e.limit, order, e.want, e.least,
        tonumber(e.got)}) do
        answer[#answer + 1] = x
      end
    end
  end
end
if raw[1] and answer[2] == '' then return wrong() end
return answer
