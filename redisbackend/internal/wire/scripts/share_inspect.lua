-- share_inspect: reads the state of a shared name. It writes nothing.
--
-- KEYS  1 hold  2 record
-- ARGV  none
-- Returns  {now, kind or "", token, then of each session with live units or a live place: session, epoch, units,
--          the token under which it got the first of them, what is left of their lease in us, limit, order of its place
--          or 0, want, least}
--          or the error WRONGTYPE: the name is that of another kind of lock
-- Keeps    everything.
-- Twice    the same reply.

local now = clock()
local s = shared(KEYS[1], KEYS[2])
if not s then return wrong() end
local answer = {now, s.kind or '', s.token}
for _, e in ipairs(s.list) do
  local units = now <= e.till and e.units or 0
  local order = now <= e.deadline and e.order or 0
  if units > 0 or order > 0 then
    for _, x in ipairs({e.session, tonumber(e.epoch), units, e.under, e.till - now, e.limit, order, e.want, e.least}) do
      answer[#answer + 1] = x
    end
  end
end
return answer
