//go:build mutant_redisbackend_releaseepoch || mutant_redisbackend_resendtoken || mutant_redisbackend_resendlease || mutant_redisbackend_deadwaiter || mutant_redisbackend_takeovertoken || mutant_redisbackend_tombstone || mutant_redisbackend_notafter || mutant_redisbackend_forgottenwaiter || mutant_redisbackend_secondturn || mutant_redisbackend_digits || mutant_redisbackend_nul || mutant_redisbackend_renewgone || mutant_redisbackend_reenterop || mutant_redisbackend_fixedlease || mutant_redisbackend_yieldplace || mutant_redisbackend_oldplace || mutant_redisbackend_lastinfirst || mutant_redisbackend_tokenclock || mutant_redisbackend_retention || mutant_redisbackend_publish || mutant_redisbackend_onebad

package redisbackend

import (
	"runtime/debug"
	"strings"
)

// mutants are faults in the scripts: what is left out or put wrong, in a build with the tag
// mutant_redisbackend_<name>. MUTANTS lists the tests that must notice.
var mutants = map[string]struct{ right, wrong string }{
	"releaseepoch":    {"and (rec.session ~= session or tonumber(rec.epoch) <= epoch)", ""},
	"resendtoken":     {"if mine and epoch == last then", "if false then"},
	"resendlease":     {"if not (flag('f') and rec.state == 'h') then redis.call('PEXPIRE', KEYS[1], lease) end", ""},
	"deadwaiter":      {"if now <= tonumber(deadline) then", "if true then"},
	"takeovertoken":   {"PEXPIRE', KEYS[1], lease) end\n  issue(rec, now, session, ARGV[2], tokens, seen, 'h', keep)", "PEXPIRE', KEYS[1], lease) end\n  rec.epoch = ARGV[2]"},
	"tombstone":       {"if rec.tombs ~= '' and entombed(rec, session, epoch, now) then", "if false then"},
	"notafter":        {"if now > tonumber(ARGV[6]) then", "if tonumber(ARGV[6]) == 0 then"},
	"forgottenwaiter": {"local next = not field and waiting(", "local next = false and waiting("},
	"secondturn":      {"if epoch < last or (epoch == last and not mine) then", "if epoch < last then"},
	"digits":          {"return string.format('%.0f', number)", "return '' .. number"},
	"nul":             {"%.0f %.0f %s %.0f ',\n    w.epoch, rec.first, rec.last, w.grant, now) .. hold)", "%.0f %.0f %s %.0f %s',\n    w.epoch, rec.first, rec.last, w.grant, now, hold))"},
	"renewgone":       {"if not mine or rec.session", "if rec.session"},
	"reenterop":       {"if op <= tonumber(rec.op) then", "if false then"},
	"fixedlease":      {"if not (flag('f') and rec.state == 'h') then", "if true then"},
	"yieldplace":      {"    place()\n    grant(", "    grant("},
	"oldplace":        {"if raw and tonumber(string.match(raw, '^%d+')) > epoch then return false end", ""},
	"lastinfirst":     {"if not raw then\n    redis.call('RPUSH'", "if not raw then\n    redis.call('LPUSH'"},
	"tokenclock":      {"math.max(rec.last + 1, now, seen + 1)", "math.max(rec.last + 1, seen + 1)"},
	"retention":       {"if rec.last <= now then return rec.keep end", "do return rec.keep end"},
	"publish":         {"redis.pcall('PUBLISH'", "redis.call('PUBLISH'"},
	"onebad":          {"local ok, code = pcall(renew,", "local ok, code = true, renew("},
}

// The one of this build is put into every script that it fits.
func init() {
	m, ok := mutants[mutantName()]
	if !ok {
		panic("redisbackend: no mutant of that name")
	}
	found := false
	mutate = func(text string) string {
		found = found || strings.Contains(text, m.right)
		return strings.ReplaceAll(text, m.right, m.wrong)
	}
	if loadScripts(); !found {
		panic("redisbackend: the scripts have changed, the mutant fits none")
	}
}

// mutantName is the name in the build tag that brought this file in.
func mutantName() string {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			for tag := range strings.SplitSeq(s.Value, ",") {
				if name, ok := strings.CutPrefix(tag, "mutant_redisbackend_"); ok {
					return name
				}
			}
		}
	}
	return ""
}
