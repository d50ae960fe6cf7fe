-- share_renew: extends the leases of the units that one session has of many shared names (in a cluster: of one slot).
--
-- KEYS  record of each name in turn
-- ARGV  1 session, then for each name: epoch; the token under which it got the first of its units; lease, ms; seconds
--       that the record is kept
-- Returns  {now, units...}   0 gone: the epoch has no live units under that token, or the name is something else by now
--          a string: the error by which this one name failed; the other names are renewed all the same
-- Keeps    the script never gives or recreates units, and changes no entry but the session's own; a lease never
--          shrinks.
-- Twice    the lease counts from the second run.
-- Late     the lease counts from when it arrives, if that epoch is the session's last; if not, nothing changes.

local session = ARGV[1]
local now = clock()

local function renew(key, epoch, under, lease, keep)
  local raw = redis.pcall('HGET', key, session)
  if not raw then return 0 end
  if type(raw) == 'table' then return string.find(raw.err, 'WRONGTYPE', 1, true) and 0 or raw.err end
  local e = read(session, raw)
  if not e or tonumber(e.epoch) ~= tonumber(epoch) or e.under ~= tonumber(under) then return 0 end
  if e.units == 0 or now > e.till then return 0 end
  e.till = math.max(e.till, now + lease * 1000)
  -- First a command that a full server allows: it then allows the next one too.
  redis.call('PEXPIRE', key, text(math.max(redis.call('PTTL', key), keep * 1000)))
  redis.call('HSET', key, session, write(e))
  return e.units
end

local answer = {now}
for i = 1, #KEYS do
  local a = 4 * i - 2
  local ok, units = pcall(renew, KEYS[i], ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]))
  if not ok then units = type(units) == 'table' and units.err or tostring(units) end
  answer[i + 1] = units
end
return answer
