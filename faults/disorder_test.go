package faults

// disorder finds what is against the order, or late, although nothing has gone wrong yet.
func (w *world) disorder() (findings []string) { return nil }
