drop schema manifold_documents cascade;
drop table manifold.faults, manifold.retired_builds, manifold.rebuilds, manifold.build_numbers, manifold.projections;
