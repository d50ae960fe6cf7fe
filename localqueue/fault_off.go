//go:build !(mutant_localqueue_lostgrant || mutant_localqueue_ghost || mutant_localqueue_lifo || mutant_localqueue_doublegrant || mutant_localqueue_earlyrecycle || mutant_localqueue_deafkin || mutant_localqueue_deafops || mutant_localqueue_evictbusy || mutant_localqueue_greedy)

package localqueue

const fault = ""
