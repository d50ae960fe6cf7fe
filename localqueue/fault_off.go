//go:build !(mutant_localqueue_lostgrant || mutant_localqueue_ghost || mutant_localqueue_lifo || mutant_localqueue_doublegrant || mutant_localqueue_earlyrecycle || mutant_localqueue_deafkin || mutant_localqueue_deafops || mutant_localqueue_evictbusy || mutant_localqueue_greedy || mutant_localqueue_unturned || mutant_localqueue_straggler || mutant_localqueue_snatch || mutant_localqueue_estranged)

package localqueue

const fault = ""
