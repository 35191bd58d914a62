-- @build int64: 12
set nocount on;
set lock_timeout 10000;
select t.tenant_id, t.version from manifold_documents.[order-summary.12] as t where t.build = @build and t.id_bytes = 0x;
