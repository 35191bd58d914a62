set nocount on;
set lock_timeout 10000;
select t.tenant_id, t.build, t.version from manifold_documents.[documents] as t where t.id_bytes = 0x;
