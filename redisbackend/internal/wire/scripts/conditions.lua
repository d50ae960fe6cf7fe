-- conditions.lua: what the scripts of conditions share, behind common.lua. It runs nothing by itself.
--
-- Keys of a condition of lock N, beside those of N itself:
--   tickets    zset    the waiters, "session:ticket", in the order of the tokens that they held: their arrival.
--                      A ticket is an epoch of its own.
--   signalled  zset    the signalled waiters, with the time by which their session must have acknowledged the signal
--   terms      hash    "session:ticket" -> "deadline patience grant holds tokens seen keep owner"

local BATCH = 100 -- as many waiters are woken by one run

-- enlist gives a session a place at the end of the queue, for an attempt.
local function enlist(queue, waiters, session, place, keep)
  redis.call('RPUSH', queue, session)
  redis.call('HSET', waiters, session, place)
  outlast(queue, keep)
  outlast(waiters, keep)
end

-- next_waiter returns the longest live waiter whose session listens; if none does, the longest live one. A process that
-- has ended stops listening at once, long before its deadline: it is passed over, and keeps its ticket in case it only
-- reconnects. In a Cluster, where a node knows its own listeners only, listening is false.
local function next_waiter(k, now, channel, listening)
  local i, first = 0, nil
  while true do
    local member = redis.call('ZRANGE', k[5], i, i)[1]
    if not member then return first end
    local deadline = string.match(redis.call('HGET', k[7], member) or '', '^%d+')
    if deadline and now <= tonumber(deadline) then
      if not listening then return member end
      local heard = redis.pcall('PUBSUB', 'NUMSUB', channel .. string.match(member, '^(.*):%d+$'))
      if heard.err or tonumber(heard[2]) > 0 then return member end -- err: the right to ask is missing
      first, i = first or member, i + 1
    else
      redis.call('ZREM', k[5], member)
      redis.call('HDEL', k[7], member)
    end
  end
end

-- wake signals a waiter of a condition, and returns its session and ticket; nil if it is dead, and then removes it. The
-- waiter also gets a place in the queue of the lock, unless its session has the lock or a place already: so the lock
-- can be pushed to it as to any other waiter, without a command of its own. k are the seven keys, has is the field of
-- the holder.
local function wake(k, now, channel, has, member)
  redis.call('ZREM', k[5], member)
  local raw = redis.call('HGET', k[7], member)
  local deadline, patience, terms, keep, owner =
    string.match(raw or '', '^(%d+) (%d+) (%d+ %d+ %d+ %d+) (%d+) (.*)$')
  if not deadline or now > tonumber(deadline) then
    redis.call('HDEL', k[7], member)
    return nil
  end
  local session, ticket = string.match(member, '^(.*):(%d+)$')
  local till = text(now + tonumber(patience) * 1000)
  redis.call('ZADD', k[6], till, member)
  outlast(k[6], keep)
  local placed, holds = '0', has and string.sub(has, 1, #session + 1) == session .. ':'
  if not holds and redis.call('HEXISTS', k[4], session) == 0 then
    placed = '1'
    enlist(k[3], k[4], session, ticket .. ' ' .. till .. ' ' .. terms .. ' ' .. keep .. ' ' .. owner, keep)
  end
  tell(channel, session, k[1], 's ' .. ticket .. ' ' .. placed .. ' ' .. k[1])
  return session, ticket
end

-- notify wakes the longest live waiter of a condition, and returns its session and ticket; nil if there is none.
local function notify(k, now, channel, has, listening)
  while true do
    local member = next_waiter(k, now, channel, listening)
    if not member then return nil end
    local session, ticket = wake(k, now, channel, has, member)
    if session then return session, ticket end
  end
end

-- recall takes signals back from waiters whose session has not acknowledged them in time, and gives each to the next:
-- the process of the first has died, or was paused. More than a BATCH of them wait for the next run.
local function recall(k, now, channel, has, listening)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', k[6], '-inf', '(' .. text(now), 'LIMIT', '0', BATCH)) do
    redis.call('ZREM', k[6], member)
    redis.call('HDEL', k[7], member)
    notify(k, now, channel, has, listening)
  end
end
