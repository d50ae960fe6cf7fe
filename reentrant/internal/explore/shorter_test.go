package explore

import "slices"

// shorter removes from a run that breaks a rule all steps that are not needed for that.
func (e *explorer) shorter(run []action) []action {
	for i := len(run) - 1; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(run), i, i+1); e.breaks(without) {
			run = without
		}
	}
	return run
}

// breaks reports whether a run is possible and breaks a rule.
func (e *explorer) breaks(run []action) bool {
	x := e.start(e.store)
	for _, a := range run {
		if x.bad != "" || !slices.Contains(e.actions(&x.state), a) {
			return false
		}
		x.happen(a)
	}
	clear(e.drained)
	return x.bad != "" || !e.drains(&x.state)
}
