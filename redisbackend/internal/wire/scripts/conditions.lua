-- conditions.lua: what the scripts of conditions share. It follows common.lua, and runs nothing by itself.
--
-- Keys of a condition of lock N, in addition to those of N itself:
--   tickets    zset    the waiters, "session:ticket", by the tokens that they held, which is the order of arrival.
--                      A ticket is an epoch of its own.
--   signalled  zset    the signalled waiters, with the time by which their session must have acknowledged the signal
--   terms      hash    "session:ticket" -> "deadline patience grant holds tokens seen keep owner"

local BATCH = 100 -- the most waiters that one run wakes

-- mistyped returns an error if one of the keys from 3, the queue, to last has a value of another type. A script that writes
-- before it reads these keys calls this first.
local function mistyped(k, last)
  local reads = {[3] = 'LINDEX', [4] = 'HEXISTS', [5] = 'ZSCORE'}
  for i = 3, last do
    local found = redis.pcall(reads[i], k[i], '0')
    if type(found) == 'table' then return found end
  end
end

-- A run removes tickets and their terms with its last commands (see clean). line has the tickets in their order, as far as
-- the run has read them; taken has, by ticket, those that are no longer to be considered; leaving has, by key, the tickets to
-- remove from that key.
local line, taken = {}, {}
local leaving = {[5] = {}, [6] = {}, [7] = {}}

-- take notes that a ticket is to be removed from key number key.
local function take(key, member)
  leaving[key][#leaving[key] + 1] = member
  if key == 5 then taken[member] = true end
end

-- clean removes the tickets that take has noted, first those of the key tickets.
local function clean(k)
  for key = 5, 7 do
    for i = 1, #leaving[key], MANY do
      redis.call(key == 7 and 'HDEL' or 'ZREM', k[key], unpack(leaving[key], i, math.min(i + MANY - 1, #leaving[key])))
    end
  end
end

-- ticket returns waiter number i, in the order of arrival; nil if there is none.
local function ticket(k, i)
  if not line[i] then
    local more = #line + (i > 1 and BATCH or 1)
    for _, member in ipairs(redis.call('ZRANGE', k[5], #line, more - 1)) do line[#line + 1] = member end
  end
  return line[i]
end

-- enlist gives a session a place at the end of the queue, for an attempt.
local function enlist(k, session, place, keep)
  redis.call('HSET', k[4], session, place)
  redis.call('RPUSH', k[3], session)
  outlast(k[3], keep)
  outlast(k[4], keep)
end

-- next_waiter returns the longest live waiter whose session listens to its channel; if no session listens, the longest live
-- waiter. A process that has ended stops listening at once, long before its deadline: it is passed over, and keeps its
-- ticket in case it only reconnects. If listening is false, next_waiter does not ask who listens: in a Cluster a node knows
-- only its own listeners.
local function next_waiter(k, now, channel, listening)
  local i, first = 0, nil
  while true do
    i = i + 1
    local member = ticket(k, i)
    if not member then return first end
    if not taken[member] then
      local deadline = string.match(redis.call('HGET', k[7], member) or '', '^%d+')
      if deadline and now <= tonumber(deadline) then
        if not listening then return member end
        local heard = redis.pcall('PUBSUB', 'NUMSUB', channel .. string.match(member, '^(.*):%d+$'))
        if heard.err or tonumber(heard[2]) > 0 then return member end -- err: the right to ask is missing
        first = first or member
      else
        take(5, member)
        take(7, member)
      end
    end
  end
end

-- wake signals a waiter of a condition, and returns the waiter's session and ticket. If the waiter is dead, wake removes it
-- and returns nil. Unless its session has the lock or a place already, the waiter also gets a place in the queue of the
-- lock, so that the lock can be pushed to it without a command of its session. k are the seven keys, has is the holder's
-- field.
local function wake(k, now, channel, has, member)
  take(5, member)
  local raw = redis.call('HGET', k[7], member)
  local deadline, patience, terms, keep, owner =
    string.match(raw or '', '^(%d+) (%d+) (%d+ %d+ %d+ %d+) (%d+) (.*)$')
  if not deadline or now > tonumber(deadline) then
    take(7, member)
    return nil
  end
  local session, number = string.match(member, '^(.*):(%d+)$')
  local till = text(now + tonumber(patience) * 1000)
  redis.call('ZADD', k[6], till, member)
  outlast(k[6], keep)
  local placed, holds = '0', has and of(session, has)
  if not holds and redis.call('HEXISTS', k[4], session) == 0 then
    placed = '1'
    enlist(k, session, number .. ' ' .. till .. ' ' .. terms .. ' ' .. keep .. ' ' .. owner, keep)
  end
  tell(channel, session, k[1], 's ' .. number .. ' ' .. placed .. ' ' .. k[1])
  return session, number
end

-- notify wakes the longest live waiter of a condition, and returns its session and ticket; nil if there is none.
local function notify(k, now, channel, has, listening)
  while true do
    local member = next_waiter(k, now, channel, listening)
    if not member then return nil end
    local session, number = wake(k, now, channel, has, member)
    if session then return session, number end
  end
end

-- recall takes signals back from waiters whose session has not acknowledged them in time, since its process has died or was
-- paused. It gives each signal to the next waiter. Signals beyond a BATCH wait for the next run. The signals in served are
-- acknowledged by this run, and go to no other waiter.
local function recall(k, now, channel, has, listening, served)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', k[6], '-inf', '(' .. text(now), 'LIMIT', '0', BATCH)) do
    if not served or not served[member] then
      notify(k, now, channel, has, listening)
      take(6, member)
      take(7, member)
    end
  end
end
