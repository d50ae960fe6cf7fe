-- free: releases a lock, or gives it to the first waiter, if the record is still as the session remembers it. It stands
-- alone, without common.lua, as pass.lua does.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 the record as the session left it  2 the hold's field  3 channel prefix; "": if sessions wait, do nothing
-- Returns  1 released; the record stays   2 released, and the lock is the first waiter's   0 nothing is changed, and
--          the session then sends release.lua: the record is another one, the hold is gone, or the first waiter is dead
--          or needs more than this script does
-- Keeps    while a session waits, the lock is not left free: the session that waits longest gets it, and it alone gets
--          a message; tokens rise.
-- Twice    the second run finds no hold, or another record.
-- Late     after later commands of the session a late copy finds no hold or another record: none is written twice.

if redis.pcall('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local first = redis.call('LINDEX', KEYS[3], '0')
if not first then return redis.call('HDEL', KEYS[1], ARGV[2]) end
local place = ARGV[3] ~= '' and redis.call('HGET', KEYS[4], first)
if not place then return 0 end
local epoch, deadline, grant, holds, tokens, seen, keep, owner =
  string.match(place, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
if not owner or #grant > 15 or #holds > 10 or #keep > 10 then return 0 end
local last, session, upto, kept, tombs = string.match(ARGV[1], '^%d+ (%d+) (%S+) (%d+) %d+ %a (%d+)(.*)$')
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
-- These cases are left to release.lua: a token ahead of the clock, a block of tokens, a hold that may linger, and a
-- place that was served already.
if now > tonumber(deadline) or now <= tonumber(last) or now <= tonumber(seen) then return 0 end
if tokens ~= '1' or owner == '*linger' then return 0 end
if first == session and tonumber(epoch) <= tonumber(upto) then return 0 end
if tonumber(keep) > tonumber(kept) then kept = keep end -- it was kept briefly, as no session waited
-- The new field comes before the old one goes, or the hash would go too.
local name = first .. ':' .. owner
local added, had = redis.call('HSET', KEYS[1], name, holds) == 1
if name == ARGV[2] then had = not added else had = redis.call('HDEL', KEYS[1], ARGV[2]) == 1 end
if not had then
  if added then redis.call('HDEL', KEYS[1], name) end
  return 0
end
redis.call('PEXPIRE', KEYS[1], grant)
local token = string.format('%.0f', now)
redis.call('SET', KEYS[2],
  token .. ' ' .. token .. ' ' .. first .. ' ' .. epoch .. ' 0 g ' .. kept .. tombs, 'EX', kept)
redis.call('LPOP', KEYS[3])
redis.call('HDEL', KEYS[4], first)
redis.pcall('PUBLISH', ARGV[3] .. first,
  'g ' .. epoch .. ' ' .. token .. ' ' .. token .. ' ' .. grant .. ' ' .. token .. ' ' .. KEYS[1])
return 2
