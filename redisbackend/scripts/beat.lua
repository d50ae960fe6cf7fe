-- beat: a session's sign of life for its waiters of one condition. It tells which of them were signalled, if the
-- message was lost, and takes back signals that others have not heard.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters  5 tickets  6 signalled  7 terms
-- ARGV  1 session  2 channel prefix  then the tickets
-- Returns  {now, code...}   1 waits   2 does not wait any more: it was signalled, or given up for dead
-- Keeps    a lock that is free goes to the first live waiter.
-- Twice    deadlines move; a signal that was answered is forgotten, and answered 2 again.

local WAITS, OVER = 1, 2
local session, channel = ARGV[1], ARGV[2]

local now = clock()
local field = holder(KEYS[1], session)
local answer = {now}
for i = 3, #ARGV do
  local member = session .. ':' .. ARGV[i]
  if redis.call('ZSCORE', KEYS[5], member) then
    local raw = redis.call('HGET', KEYS[7], member)
    local patience, rest = string.match(raw or '', '^%d+ (%d+)(.*)$')
    if patience then
      redis.call('HSET', KEYS[7], member, text(now + tonumber(patience) * 1000) .. ' ' .. patience .. rest)
      local keep = string.match(rest, '^ %d+ %d+ %d+ %d+ (%d+)')
      redis.call('EXPIRE', KEYS[5], keep)
      redis.call('EXPIRE', KEYS[7], keep)
    end
    answer[i - 1] = patience and WAITS or OVER
  else
    redis.call('ZREM', KEYS[6], member)
    redis.call('HDEL', KEYS[7], member)
    answer[i - 1] = OVER
  end
end

recall(KEYS, now, channel, field)
local next = not field and waiting(KEYS[3], KEYS[4], now)
if next then
  grant(KEYS[1], KEYS[2], KEYS[3], KEYS[4], record(redis.call('GET', KEYS[2])), now, next, channel)
end
return answer
