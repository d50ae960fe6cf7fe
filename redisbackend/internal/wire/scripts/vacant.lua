-- vacant.lua: the beginning of acquire, which the loader puts before common.lua. It takes a lock that has no holder and
-- for which no session waits, as when a name is locked for the first time. To create common.lua's functions would take
-- Redis longer than all of this. vacant.lua changes nothing, and the rest of acquire runs, if the record has tombstones or
-- is of this attempt or a newer one of the session, if tokens are ahead of the clock, if several tokens are wanted, or if
-- anything is an error.
--
-- A late copy is refused by its not after or by the record. So the record need only last until the latest not after, and for
-- as long as another server's clock may be behind: ARGV 14. A record that was kept for longer before still is.

-- there counts the keys of the lock that exist; false if this is not for vacant.lua. If there is one, it may be the record.
local there = ARGV[8] == '1' and ARGV[2] ~= '0' and redis.pcall('EXISTS', KEYS[1], KEYS[2], KEYS[3])
local raw = there == 1 and redis.pcall('GET', KEYS[2])
if there == 0 or raw then
  local keep, t = ARGV[14], redis.call('TIME')
  local token = t[1] .. string.sub('00000', #t[2]) .. t[2] -- string.format takes much longer
  local now = tonumber(token)
  local able = now <= tonumber(ARGV[6]) and now > tonumber(ARGV[9])
  if raw then
    local first, last, session, epoch, kept =
      string.match(raw.err and '' or raw, '^(%d+) (%d+) (%S+) (%d+) %d+ %a (%d+)$')
    able = able and kept and tonumber(first) <= tonumber(last) and #kept <= 10 and #epoch <= 16
      and now > tonumber(last) and (session ~= ARGV[1] or tonumber(epoch) < tonumber(ARGV[2]))
    if able and tonumber(kept) > tonumber(keep) then keep = kept end
  end
  if able then
    redis.call('SET', KEYS[2],
      token .. ' ' .. token .. ' ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' 0 h ' .. keep, 'EX', keep)
    redis.call('HSET', KEYS[1], ARGV[1] .. ':' .. ARGV[3], ARGV[4])
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
    if keep == ARGV[14] then return now end
    return {1, now, now, now, string.find(ARGV[7], 'f', 1, true) and tonumber(ARGV[5]) or 0, tonumber(keep)}
  end
end

