-- share: what a session has of a shared name from now on, and what it wants to have: it asks, gives back, waits,
-- withdraws and confirms. A copy of the last epoch changes nothing of that.
--
-- KEYS  1 hold  2 record
-- ARGV  1 session  2 epoch  3 kind: r or p
--       4 keep: units of what it has  5 want: units in total  6 least: in total, with which it is content
--       7 limit: units of all sessions together
--       8 under: the token under which it has its units  9 tail: the last token that a writer used of its block, or 0
--      10 tokens wanted with a grant of ALL  11 highest token this session has seen; of a reader: of this name
--      12 lease, ms  13 grant TTL, ms  14 patience, ms: the place is dropped when not refreshed for so long
--      15 not after: Redis time, us, from which this copy is refused  16 memory: the latest that any copy had
--      17 channel prefix  18 seconds that the record is kept
-- Returns  {code, now, units, placed (1 or 0), first token, last token, may, share, epoch}
--   1 shared: units of this session, with or without a place; may: what it may keep so that the head of the queue
--     fits; share: the limit divided by the sessions, 0 for r    2 stale: epoch is a higher one of this session
--   3 lost: keep is more than the live units under that token; it has none now, and no place    4 late
--   or an error, and nothing is touched: WRONGTYPE, the name is that of another kind of lock; FARTOKEN, see common.lua
-- Keeps    a grant and the units of the others are no more than the limit of who is granted; only the head is granted;
--          what a higher epoch has; tokens rise; a lease never shrinks.
-- Twice    the second run gives live units a full lease and the place a new deadline, and answers the present state.

local session, epoch, kind = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local keep, want, least, limit = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local under, tail, tokens, seen = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
local lease, grant, patience = tonumber(ARGV[12]) * 1000, ARGV[13], tonumber(ARGV[14]) * 1000
local notafter, memory, channel = tonumber(ARGV[15]), tonumber(ARGV[16]), ARGV[17]
local SHARED, STALE, LOST, LATE = 1, 2, 3, 4

local now = clock()
local s = shared(KEYS[1], KEYS[2])
if not s or s.kind and s.kind ~= kind then return wrong() end
if now > notafter then return {LATE, now, 0, 0, 0, 0, 0, 0, 0} end
local me = s.by[session]
if me and epoch < tonumber(me.epoch) then return {STALE, now, 0, 0, 0, 0, 0, 0, tonumber(me.epoch)} end

-- beyond is far for the even tokens of a shared name.
local function beyond(n, above)
  return far({last = s.token}, now, 2 * math.max(tonumber(n), 1), above)
end

local refused = want > keep and beyond(tokens, seen)
if refused then return refused end

s.kind = kind
if not me then
  me = {session = session, epoch = '-1', units = 0, till = 0, memory = 0, first = 0, limit = limit, order = 0, want = 0,
    least = 0, deadline = 0, grant = '0', tokens = '0', seen = '0'}
  s.list[#s.list + 1] = me
end

-- clear takes a session's place away.
local function clear(e)
  e.order, e.want, e.least, e.deadline, e.grant, e.tokens, e.seen = 0, 0, 0, 0, '0', '0', '0'
  e.dirty = true
end

-- Settle: units past their lease and places past their deadline are written down as gone.
for _, e in ipairs(s.list) do
  if e.units > 0 and now > e.till then e.units, e.first, e.dirty = 0, 0, true end
  if e.order > 0 and now > e.deadline then clear(e) end
end

local function head()
  local first
  for _, e in ipairs(s.list) do
    if e.order > 0 and (not first or e.order < first.order) then first = e end
  end
  return first
end

-- count answers how many units the others have, how many others have some, how many others have units or a place, and
-- how many of them have a place.
local function count(me)
  local units, holders, sessions, places = 0, 0, 0, 0
  for _, e in ipairs(s.list) do
    if e ~= me then
      units = units + e.units
      if e.units > 0 then holders = holders + 1 end
      if e.order > 0 then places = places + 1 end
      if e.units > 0 or e.order > 0 then sessions = sessions + 1 end
    end
  end
  return units, holders, sessions, places
end

local function prolong(e, us)
  e.till = math.max(e.till, now + us)
  e.memory = math.max(e.memory, e.till)
  e.dirty = true
end

local function even(token)
  return token + token % 2
end

-- draw takes a new block of tokens, as issue does, and answers its first.
local function draw(n, above)
  local first = even(math.max(s.token + 2, now, above + 2))
  local horizon = now + HORIZON
  s.token = math.max(first, math.min(first + 2 * (n - 1), horizon - horizon % 2))
  return first
end

-- give lets a session have units: a writer under new tokens, all others under the last one. If a reader has seen a higher
-- one, Redis forgot a write, and there is a new last one.
local function give(e, units, n, above)
  e.units, e.dirty = units, true
  if kind == 'r' and units == ALL then
    e.first = draw(tonumber(n), tonumber(above))
    return
  end
  if s.token == 0 or kind == 'r' and tonumber(above) > s.token then draw(1, tonumber(above)) end
  e.first = s.token
end

-- retain leaves the session so many of its units, and gives back the tokens that a writer did not use.
local function retain(units)
  if kind == 'r' and me.units == ALL and units < ALL then
    if me.first == under and me.first <= tail and tail < s.token and tail % 2 == 0 then s.token = tail end
    me.first = s.token
  end
  me.units = units
  if units > 0 then
    prolong(me, lease)
  else
    me.first, me.till = 0, 0
  end
end

-- queue gives the session a place, updates the one it has, or takes it away. A session with its fair share of permits
-- gets none: nothing, or what is free if nobody waits.
local function queue()
  if want == keep then return clear(me) end
  local enough = least
  if kind == 'p' and me.units >= least then
    local units, _, sessions, places = count(me)
    if me.units >= math.floor(limit / (sessions + 1)) then
      clear(me)
      local free = math.min(want, limit - units)
      if places == 0 and free > me.units then
        give(me, free, 1, seen)
        prolong(me, lease)
      end
      return
    end
    enough = me.units + 1 -- what it has already is no grant
  end
  if me.order == 0 then
    local last = 0
    for _, e in ipairs(s.list) do last = math.max(last, e.order) end
    me.order = last + 1
  end
  me.want, me.least, me.deadline, me.grant, me.tokens, me.seen = want, enough, now + patience, grant, tokens, seen
end

local code = SHARED
me.memory, me.dirty = math.max(me.memory, notafter, memory), true
if epoch > tonumber(me.epoch) then
  local has = me.first == under and me.units or 0
  me.epoch, me.limit = ARGV[2], limit
  if keep > has then
    code = LOST
    me.units, me.first, me.till = 0, 0, 0
    clear(me)
  else
    retain(keep)
    queue()
  end
else
  if me.units > 0 then prolong(me, lease) end
  if me.order > 0 then me.deadline = now + patience end
end

-- Serve heads for as long as they fit.
local granted = {}
local first = head()
while first do
  local units, _, sessions, places = count(first)
  if first.least > first.limit - units or beyond(first.tokens, first.seen) then break end
  local n = math.min(first.want, first.limit - units)
  if kind == 'p' and places > 0 then
    n = math.min(n, math.max(first.least, math.floor(first.limit / (sessions + 1))))
  end
  local ttl, wanted, above = tonumber(first.grant) * 1000, first.tokens, first.seen
  clear(first)
  give(first, n, wanted, above)
  if first == me then
    prolong(me, lease)
  else
    prolong(first, ttl)
    granted[#granted + 1] = first
  end
  first = head()
end

-- What the holders may keep so that the head fits.
local most = ALL
if first then
  local _, holders, sessions = count(first)
  local goal = first.least
  if kind == 'p' then
    goal = math.max(goal, math.min(first.want, math.floor(first.limit / (sessions + 1))))
  end
  if holders > 0 then most = math.max(0, math.floor((first.limit - goal) / holders)) end
end
local function may(e)
  return e == first and ALL or most
end

-- Save. A key that is there is first written to by a command that a full server allows: it then allows the next ones
-- too, and what is kept or given back needs no memory.
local lasts = now + tonumber(ARGV[18]) * 1000000 + math.max(0, math.min(s.token - now, FARTHEST))
local changes, over = {'=', kind .. ' ' .. text(s.token)}, {}
for _, e in ipairs(s.list) do
  if e.units == 0 and e.order == 0 and now > e.memory and e ~= me then
    over[#over + 1] = e.session
  else
    lasts = math.max(lasts, e.till, e.memory, e.order > 0 and e.deadline + tonumber(e.grant) * 1000 or 0)
    if e.dirty then changes[#changes + 1], changes[#changes + 2] = e.session, write(e) end
  end
end
local left = redis.call('PTTL', KEYS[2])
local ttl = text(math.max(left, math.ceil((lasts - now) / 1000)))
if left > 0 then redis.call('PEXPIRE', KEYS[2], ttl) end
redis.call('HSET', KEYS[2], unpack(changes))
if left <= 0 then redis.call('PEXPIRE', KEYS[2], ttl) end
if over[1] then redis.call('HDEL', KEYS[2], unpack(over)) end

-- Tell those who were granted, and ask those who have more than they may keep. The caller's answer says both.
local told = {}
for _, e in ipairs(granted) do
  told[e] = true
  tell(channel, e.session, KEYS[1], string.format('h %s %.0f %.0f %.0f %.0f %.0f %.0f ', e.epoch, e.units, e.first,
    kind == 'r' and e.units == ALL and s.token or e.first, may(e), e.till, now) .. KEYS[1])
end
for _, e in ipairs(s.list) do
  if e ~= me and not told[e] and e.units > may(e) then
    tell(channel, e.session, KEYS[1], 'x ' .. text(may(e)) .. ' ' .. KEYS[1])
  end
end

local share = 0
if kind == 'p' then
  local _, _, sessions = count(me)
  share = math.floor(limit / (sessions + 1))
end
return {code, now, me.units, me.order > 0 and 1 or 0, me.first, kind == 'r' and me.units == ALL and s.token or me.first,
  may(me), share, tonumber(me.epoch)}
