-- yield: an attempt that gives the lock of the session's last attempt to the first waiter, and queues up behind others,
-- if the record is still as the session remembers it. If no session waits, the attempt takes the lock over and begins a
-- lease, by pass.lua, which follows this script in one text. Yield needs nothing of common.lua.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 to 9 those of pass.lua, to begin a lease
--      10 session  11 its entry among the waiters up to the deadline, "epoch "  12 patience, us
--      13 its entry after the deadline, " grant holds tokens seen keep owner"
--      14 how the record ends: its keep and tombstones  15 least TTL of the queue, ms: acquire prolongs a shorter one
--      16 channel prefix
-- Returns  0 nothing is changed, and the session then sends acquire.lua: the record is another one, the hold is gone,
--          not after has passed, the first waiter is dead or needs more than this script does, or the session has a
--          place. Below 0: the lock is the first waiter's; the number is its TTL in ms, negated. Above 0: as pass.lua
--          returns it.
-- Keeps    what pass.lua keeps; the session that waits longest gets the lock, and it alone gets a message; tokens rise.
-- Twice    no record is written twice, so the second run finds another record, whatever happened in between.
-- Late     a late copy does nothing if the record has changed, since the record that it compares with never comes
--          again. After its not after it does nothing at all.

local first = redis.call('LINDEX', KEYS[3], '0')
if first then
  if redis.pcall('GET', KEYS[2]) ~= ARGV[1] then return 0 end
  local place = redis.call('HGET', KEYS[4], first)
  if not place or redis.call('HEXISTS', KEYS[4], ARGV[10]) == 1 then return 0 end
  local epoch, deadline, grant, holds, tokens, seen, keep, owner =
    string.match(place, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not owner or #grant > 15 or #holds > 10 or #keep > 10 then return 0 end
  local t = redis.call('TIME')
  local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
  if now > tonumber(deadline) then return 0 end
  -- The time is up if the token, which is no less than the clock, is above not after. A token that is far ahead of the
  -- clock, a block of tokens, and a hold that may linger are left to acquire.lua.
  local token = math.max(now, tonumber(ARGV[2]), seen + 1)
  if token > tonumber(ARGV[8]) or tokens ~= '1' or owner == '*linger' then return 0 end
  if tonumber(keep) > tonumber(ARGV[9]) or redis.call('PTTL', KEYS[3]) < tonumber(ARGV[15]) then return 0 end
  -- The new field comes before the old one goes, or the hash would go too.
  local added = redis.call('HSET', KEYS[1], first .. ':' .. owner, holds) == 1
  if redis.call('HDEL', KEYS[1], ARGV[4]) == 0 then
    if added then redis.call('HDEL', KEYS[1], first .. ':' .. owner) end
    return 0
  end
  redis.call('PEXPIRE', KEYS[1], grant)
  token = string.format('%.0f', token)
  token = token .. ' ' .. token .. ' '
  redis.call('SET', KEYS[2], token .. first .. ' ' .. epoch .. ' 0 g ' .. ARGV[14], 'EX', ARGV[9])
  -- This session's place comes before the waiter's goes, or the keys would go too, and their TTL.
  redis.call('HSET', KEYS[4], ARGV[10], ARGV[11] .. string.format('%.0f', now + tonumber(ARGV[12])) .. ARGV[13])
  redis.call('RPUSH', KEYS[3], ARGV[10])
  redis.call('LPOP', KEYS[3])
  redis.call('HDEL', KEYS[4], first)
  redis.pcall('PUBLISH', ARGV[16] .. first,
    'g ' .. epoch .. ' ' .. token .. grant .. ' ' .. string.format('%.0f', now) .. ' ' .. KEYS[1])
  return -tonumber(grant)
end

