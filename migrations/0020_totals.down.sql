drop table manifold.total_sums, manifold.totals;
