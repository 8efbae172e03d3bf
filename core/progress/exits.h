/* A process that ends without destroying its groups says goodbye to its peers all the same, so that they need not tell
 * an end from a crash by its symptoms.  _exit, signals and exec say nothing. */
#ifndef EXITS_H
#define EXITS_H

struct engine;

/* A family of groups has come up; its backends are loaded. */
void exits_add(struct engine *engine);

/* It is about to be freed. */
void exits_remove(struct engine *engine);

#endif
