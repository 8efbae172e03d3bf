/* The order in which ranks are placed in a mesh: host by host.  Pure. */
#ifndef TRAIN_MESH_ORDER_H
#define TRAIN_MESH_ORDER_H

/* Fills place_to_rank with the ranks 0 .. n - 1 in their order, given each rank's host.  First come, host by host, as
 * many whole groups of `inner` consecutive ranks as each host has, then the ranks that are left over.  Ranks of a host
 * stay in rank order.  Hosts are numbered from 0. */
void mesh_order_by_host(const int *host, int n, int inner, int *place_to_rank);

#endif
