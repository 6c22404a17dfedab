/* Published constants of an A2/A3 platform, for orchestrations and kernels that name them. The
 * simulator has the same shape by default. They describe the platform, not a run: a run with fewer
 * blocks has fewer. */
#ifndef PTO_PLATFORM_CONFIG_H
#define PTO_PLATFORM_CONFIG_H

#define PLATFORM_MAX_BLOCKDIM 24       /* blocks; each has one AIC and two AIV cores */
#define PLATFORM_MAX_AICPU_THREADS 4   /* three schedulers and one orchestrator */
#define PLATFORM_MAX_AIC_PER_THREAD 24 /* cores of one scheduler thread */
#define PLATFORM_MAX_AIV_PER_THREAD 48
#define PLATFORM_PROF_SYS_CNT_FREQ 50000000 /* Hz, of the system counter */

#endif
