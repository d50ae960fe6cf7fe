-- driver: runs one script after another in one interpreter, which costs far less than an EVAL for each.
--
-- ARGV  the texts of the scripts
-- It asks for what to do with the command EXPLORE, whose arguments are what came of the last run: "ok" and what the
-- script returned, or "error" and why. The answer is the number of a script, the number of its keys, keys and
-- arguments; or nothing, and that is the end.

local scripts = {}
for i, text in ipairs(ARGV) do
  scripts[i] = assert(loadstring('local KEYS, ARGV = ...; ' .. text))
end

local function answer(ok, result)
  if not ok then return {'error', type(result) == 'table' and result.err or tostring(result)} end
  if type(result) ~= 'table' then result = {result} end
  local texts = {'ok'}
  for i, x in ipairs(result) do
    texts[i + 1] = type(x) == 'number' and string.format('%.0f', x) or x
  end
  return texts
end

local last = {'ok'}
while true do
  local job = redis.call('EXPLORE', unpack(last))
  if not job then return end
  local keys, args = {}, {}
  for i = 3, #job do
    if i < 3 + job[2] then keys[#keys + 1] = job[i] else args[#args + 1] = job[i] end
  end
  last = answer(pcall(scripts[tonumber(job[1])], keys, args))
end
