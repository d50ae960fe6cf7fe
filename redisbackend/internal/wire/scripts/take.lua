-- take: an attempt that takes a free lock which the session itself had last, if the record is still as the session
-- remembers it. It stands alone, without common.lua, as pass.lua does.
--
-- KEYS  1 hold  2 record  3 queue
-- ARGV  1 the record as the session left it  2 least token  3 the new record without its tokens, with the attempt's
--       epoch  4 the hold's new field  5 holds wanted  6 lease, ms
--       7 not after: Redis time, us, from which this copy is refused  8 seconds that the record is kept
-- Returns  0 nothing is changed: the record is another one, the lock is not free, sessions wait, or not after has
--          passed; the session then sends acquire.lua. Above 0: the attempt has the lock; the number is Redis's time in
--          us. The token is that time, or the least token if that is higher. So tokens rise even if Redis forgot those
--          of other sessions.
-- Keeps    at most one field in the hold hash; no waiter is passed over; tokens rise.
-- Twice    no record is written twice, so the second run finds another record, whatever happened in between.
-- Late     a late copy does nothing if the record has changed, since the record that it compares with never comes
--          again. After its not after it does nothing at all.

if redis.pcall('GET', KEYS[2]) ~= ARGV[1] then return 0 end
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
local t = redis.call('TIME')
local token = t[1] .. string.sub('00000', #t[2]) .. t[2] -- string.format takes much longer
local now = tonumber(token)
if now > tonumber(ARGV[7]) then return 0 end
if now < tonumber(ARGV[2]) then token = ARGV[2] end
-- The record comes first: it shows that a hold without a TTL was left by a run that stopped (foreign in common.lua).
redis.call('SET', KEYS[2], token .. ' ' .. token .. ARGV[3], 'EX', ARGV[8])
redis.call('HSET', KEYS[1], ARGV[4], ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return now
