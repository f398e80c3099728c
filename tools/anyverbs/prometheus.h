/* prometheus.h: a survey in Prometheus' text format. */
#ifndef ANYVERBS_PROMETHEUS_H
#define ANYVERBS_PROMETHEUS_H

#include "survey.h"

/* Prints all metrics; NULL: no node is up, and anyverbs_up 0 is the only one. */
void prometheus_print(const struct survey *s);

#endif
