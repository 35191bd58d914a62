drop schema manifold cascade;
