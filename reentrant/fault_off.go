//go:build !(mutant_reentrant_lategrant || mutant_reentrant_anygrant || mutant_reentrant_lostbaton || mutant_reentrant_orphan || mutant_reentrant_deadctx || mutant_reentrant_shift || mutant_reentrant_deaf || mutant_reentrant_norenew || mutant_reentrant_credulous || mutant_reentrant_spent || mutant_reentrant_forgetful || mutant_reentrant_twintoken || mutant_reentrant_tail || mutant_reentrant_stubborn || mutant_reentrant_hasty || mutant_reentrant_daydream || mutant_reentrant_unburied || mutant_reentrant_panicky || mutant_reentrant_amnesia || mutant_reentrant_jostle || mutant_reentrant_fidgety || mutant_reentrant_drowsy || mutant_reentrant_curt || mutant_reentrant_ingrate || mutant_reentrant_trusting || mutant_reentrant_hoarder || mutant_reentrant_overfull || mutant_reentrant_sleepless || mutant_reentrant_oversleep)

package reentrant

const fault = ""
