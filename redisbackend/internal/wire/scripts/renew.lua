-- renew: extends the leases of many locks of one session (in a cluster: of one slot).
--
-- KEYS  hold and record of each lock in turn
-- ARGV  1 session, then for each lock: epoch; lease, ms
-- Returns  {now, code...}   0 gone: this epoch no longer has the lock, or the name is something else by now
--          above 0: renewed; the code is the first token of the hold's block
--          a string: the error by which this one lock failed; the other locks are renewed all the same
-- Keeps    the script never takes or recreates a hold, and changes no lock that is not the session's at that epoch.
-- Twice    the lease counts from the second run.
-- Late     the lease counts from when it arrives, if the epoch still has the lock; if not, nothing changes.

local session = ARGV[1]
local now = clock()

local function renew(hold, recordkey, epoch, lease)
  local rec, _, mine = look({hold, recordkey}, session)
  if rec.err then return string.find(rec.err, 'WRONGTYPE', 1, true) and 0 or rec.err end
  if not mine or rec.session ~= session or tonumber(rec.epoch) ~= tonumber(epoch) then return 0 end
  redis.call('PEXPIRE', hold, lease)
  redis.call('EXPIRE', recordkey, retention(rec, now))
  return rec.first
end

local answer = {now}
for i = 1, #KEYS / 2 do
  local ok, code = pcall(renew, KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i], ARGV[2 * i + 1])
  if not ok then code = type(code) == 'table' and code.err or tostring(code) end
  answer[i + 1] = code
end
return answer
