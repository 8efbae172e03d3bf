/* What the choice of algorithms needs to know of a group: the job's tuning file, and who is on which host. */
#ifndef LEARN_H
#define LEARN_H

struct tutti_group;

/* Before the backends are opened: rank 0 hands the tuning out. */
int learn_give(struct tutti_group *group);

/* Afterwards. */
int learn_take(struct tutti_group *group);

void learn_forget(struct tutti_group *group);

#endif
